"""What the documentation needs beside its pages: formulas, and pictures of results.

Formulas become MathML when the site is built, so that a page needs neither scripts nor a network.
"""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml import converter
from mkdocs.structure.files import File, Files

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Turn the formulas of a page into MathML."""
    return _FORMULA.sub(_mathml, content)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pictures that commands made, which lie beside their figures, to the site."""
    root = Path(config.config_file_path).parent
    for picture in [*sorted((root / "results").rglob("*.png")), root / "benchmarks/scaling.png"]:
        name = picture.relative_to(root).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    formula = converter.convert(html.unescape(match[2].strip()), display=display)
    # The converter sets no space between a function's name and what follows.
    return formula.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em" />')
