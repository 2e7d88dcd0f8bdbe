"""Examples for the page: small pictures as PNG, and other vectors as lines in SVG."""

import base64
import io
import math

import numpy as np
from markupsafe import Markup
from PIL import Image

from aisle.report.pictures import Panel

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
    """Return a panel as an element: an image for examples of two dimensions, lines for others."""
    if len(shape) == 2:
        return _image(panel, (shape[0], shape[1]), label)
    return _lines(panel, label)


def _image(panel: Panel, shape: tuple[int, int], label: str) -> Markup:
    """Draw in ink on a transparent ground, which the page may turn into light on dark."""
    height, width = _size(shape)
    gap = max(1, max(height, width) // 14)
    rows = math.ceil(len(panel.examples) / panel.columns)
    opacity = np.zeros((rows * (height + gap) - gap, panel.columns * (width + gap) - gap))
    for i, values in enumerate(_opacities(panel.examples)):
        row, column = divmod(i, panel.columns)
        top, left = row * (height + gap), column * (width + gap)
        opacity[top : top + height, left : left + width] = _resized(
            values.reshape(shape), (height, width)
        )
    return Markup(
        '<img class="pictures" src="{}" width="{}" height="{}" alt="{}" decoding="async">'
    ).format(_png(opacity), opacity.shape[1], opacity.shape[0], label)


def _size(shape: tuple[int, int]) -> tuple[int, int]:
    """Return the height and width that a picture is drawn with, in pixels."""
    side = max(shape)
    scale = _MOST_SIDE / side if side > _MOST_SIDE else math.ceil(_LEAST_SIDE / side)
    return max(1, round(scale * shape[0])), max(1, round(scale * shape[1]))


def _resized(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    how = Image.Resampling.NEAREST if size >= picture.shape else Image.Resampling.BOX
    image = Image.fromarray(picture.astype(np.float32))
    return np.asarray(image.resize((size[1], size[0]), how))


def _opacities(examples: np.ndarray) -> np.ndarray:
    """Scale values to opacities: 0 to 1 as they are, others by the range they have."""
    low, high = min(0.0, float(np.nanmin(examples))), max(1.0, float(np.nanmax(examples)))
    shares = _GROUND + (1 - _GROUND) * (examples - low) / (high - low)
    return np.nan_to_num(shares, nan=0.0)


def _png(opacity: np.ndarray) -> str:
    levels = np.round(255 * opacity).astype(np.uint8)
    pixels = np.stack([np.zeros_like(levels), levels], axis=-1)
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
