"""Examples for the page: small pictures as PNG, and other vectors as lines in SVG."""

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image

from aisle.report.pictures import Panel, picture_size

# Pixels that the longer side of a picture has: at least so many that a browser need not invent any,
# at most so many that a page of pictures stays small.
_LEAST_SIDE, _MOST_SIDE = 56, 112
# Opacity of a picture's ground, which shows where it ends.
_GROUND = 0.06
# Points of a line: more cannot be seen.
_NUM_POINTS = 120
# Units of the place that a line has in a drawing, and the margin in it.
_WIDTH, _HEIGHT, _MARGIN = 100, 76, 6


def draw(panel: Panel, shape: tuple[int, ...], label: str) -> Markup:
    """Return a panel as an element: an image for examples that are pictures, lines for others."""
    size = picture_size(shape)
    return _lines(panel, label) if size is None else _image(panel, size, label)


def _image(panel: Panel, size: tuple[int, int, int], label: str) -> Markup:
    """Draw on a transparent ground, in colour or in ink, which the page may turn into light."""
    shares = _shares(panel.examples).reshape(-1, *size)
    planes = [_grid(shares[..., channel], panel.columns) for channel in range(size[2])]
    is_color = len(planes) > 1
    pixels = _color(planes) if is_color else _ink(planes[0])
    return Markup(
        '<img class="{}" src="{}" width="{}" height="{}" alt="{}" decoding="async">'
    ).format(
        "pictures" if is_color else "pictures ink",
        _png(pixels),
        pixels.shape[1],
        pixels.shape[0],
        label,
    )


def _grid(pictures: np.ndarray, columns: int) -> np.ndarray:
    """Put pictures of one channel side by side, with NaN between them."""
    height, width = _size((pictures.shape[1], pictures.shape[2]))
    gap = max(1, max(height, width) // 14)
    rows = math.ceil(len(pictures) / columns)
    grid = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        top, left = row * (height + gap), column * (width + gap)
        grid[top : top + height, left : left + width] = _resized(picture, (height, width))
    return grid


def _ink(shares: np.ndarray) -> np.ndarray:
    """Return black that is the more opaque, the larger a value is."""
    opacity = np.nan_to_num(_GROUND + (1 - _GROUND) * shares, nan=0.0)
    return _levels(np.stack([np.zeros_like(opacity), opacity], axis=-1))


def _color(planes: Sequence[np.ndarray]) -> np.ndarray:
    """Return red, green and blue, opaque where there is a picture."""
    is_there = np.isfinite(planes[0]).astype(float)
    return _levels(np.stack([*(np.nan_to_num(plane) for plane in planes), is_there], axis=-1))


def _levels(shares: np.ndarray) -> np.ndarray:
    return np.round(255 * shares).astype(np.uint8)


def _size(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the height and width that a picture is drawn with, in pixels."""
    side = max(shape)
    scale = _MOST_SIDE / side if side > _MOST_SIDE else math.ceil(_LEAST_SIDE / side)
    return max(1, round(scale * shape[0])), max(1, round(scale * shape[1]))


def _resized(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    how = Image.Resampling.NEAREST if size >= picture.shape else Image.Resampling.BOX
    image = Image.fromarray(picture.astype(np.float32))
    return np.asarray(image.resize((size[1], size[0]), how))


def _shares(examples: np.ndarray) -> np.ndarray:
    """Scale values to shares: 0 to 1 as they are, others by the range they have."""
    low, high = min(0.0, float(np.nanmin(examples))), max(1.0, float(np.nanmax(examples)))
    return (examples - low) / (high - low)


def _png(pixels: np.ndarray) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _lines(panel: Panel, label: str) -> Markup:
    low, high = np.nanmin(panel.examples), np.nanmax(panel.examples)
    unit = (panel.examples - low) / max(high - low, 1e-12)
    rows = math.ceil(len(unit) / panel.columns)
    lines = [_line(one, *divmod(i, panel.columns)) for i, one in enumerate(unit)]
    return Markup(
        '<svg class="lines" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(panel.columns * _WIDTH, rows * _HEIGHT, label, Markup("").join(lines))


def _line(values: np.ndarray, row: int, column: int) -> Markup:
    if not np.all(np.isfinite(values)):
        return Markup("")
    if len(values) == 1:
        values = np.repeat(values, 2)
    if len(values) > _NUM_POINTS:
        places = np.linspace(0, len(values) - 1, _NUM_POINTS)
        values = np.interp(places, np.arange(len(values)), values)
    left, top = _WIDTH * column, _HEIGHT * row
    xs = left + _MARGIN + (_WIDTH - 2 * _MARGIN) * np.linspace(0, 1, len(values))
    ys = top + _MARGIN + (_HEIGHT - 2 * _MARGIN) * (1 - values)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    ground = Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(
        left + 2, top + 2, _WIDTH - 4, _HEIGHT - 4
    )
    return ground + Markup('<polyline points="{}"/>').format(points)
