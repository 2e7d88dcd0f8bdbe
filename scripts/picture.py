"""Take a picture of the samples on a page of `aisle report`, with Chromium.

    aisle report runs/patients --out patients.html
    python -m scripts.picture patients.html docs/assets/report.png

The run is that of docs/tables.md.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

_WIDTH, _HEIGHT = 1000, 3000
_ONLY = (
    "<style>section:not(#samples), header, footer, nav, .result, .scroll { display: none }</style>"
)


def main() -> int:
    """Take the picture, and say how large it is."""
    page, target = map(Path, sys.argv[1:])
    browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if browser is None:
        sys.exit("there is no Chromium: install it")
    with tempfile.TemporaryDirectory() as folder:
        copy, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        copy.write_text(page.read_text(encoding="utf-8").replace("</head>", f"{_ONLY}</head>"))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        size = [f"--screenshot={shot}", f"--window-size={_WIDTH},{_HEIGHT}"]
        subprocess.run([browser, *options, *size, copy.as_uri()], check=True, capture_output=True)
        picture = Image.open(shot).convert("RGB")
    paper = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    _, _, _, bottom = ImageChops.difference(picture, paper).getbbox() or (0, 0, 0, _HEIGHT)
    cropped = picture.crop((0, 0, _WIDTH, min(_HEIGHT, bottom + 30)))
    cropped.save(target, optimize=True)
    print(f"{target}: {target.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
