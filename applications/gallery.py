"""Write the recorded answers into the gallery and the READMEs: `python -m applications.gallery`.

A test checks that there would be nothing to do.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "applications"
GALLERY = ROOT / "docs" / "applications.md"


def recorded() -> list[str]:
    """Return the applications that have a recorded result."""
    return sorted(path.parent.name for path in RECORDS.glob("*/*.json"))


def filled(page: Path, show: Callable[[str, dict[str, Any]], str]) -> str:
    """Return a page with what is shown of each record between the comments that name it."""
    text = page.read_text()
    for name in recorded():
        record = json.loads((RECORDS / name / f"{name}.json").read_text())
        place = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        shown = show(name, record)
        text = place.sub(lambda found, shown=shown: found[1] + shown + found[2], text)
    return text


def in_gallery(name: str, record: dict[str, Any]) -> str:
    """Return the question, the picture and the answer."""
    picture = f"![{name}](results/applications/{name}/{name}.png)"
    return f"{record['question']}\n\n{picture}\n\n{record['answer']} {_cost(record)}"


def in_readme(name: str, record: dict[str, Any]) -> str:
    """Return the question and the answer, with what it cost."""
    table = f"[Table](../../results/applications/{name}/{name}.md)"
    return f"{record['question']}\n\n{record['answer']}\n\n{_cost(record)} {table}."


def _cost(record: dict[str, Any]) -> str:
    return f"All of it took {record['processor_seconds'] / 60:.0f} minutes of processor time."


def pages() -> dict[Path, str]:
    """Return the pages that show records, as they should be."""
    readmes = [ROOT / "applications" / name / "README.md" for name in recorded()]
    found = {page: filled(page, in_readme) for page in readmes}
    return found | {GALLERY: filled(GALLERY, in_gallery)}


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
