"""Samples and reconstructions, and grids of them as pictures."""

import base64
import io
import math
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from matplotlib.figure import Figure
from PIL import Image

from aisle.context import bind, given, parts_of
from aisle.files import writing
from aisle.types import Model, PRNGKey, Proposal

_COLUMNS = 8
# Pixels that the longer side of a picture on the page has at most.
_MOST_SIDE = 112
# Pixels that the strip of an example that is no picture is high, against 1 between strips.
_STRIP = 4
# Opacity of the ground of a picture on the page, which shows where it ends.
_GROUND = 0.06


class Panel(NamedTuple):
    """A titled grid of examples, `columns` to a row; NaN leaves a place empty."""

    title: str
    examples: np.ndarray
    columns: int = _COLUMNS


@eqx.filter_jit
def sample_observations(
    key: PRNGKey, model: Model, number: int, contexts: PyTree = None
) -> Float[Array, "number features"]:
    """Draw from a model, to be shown as pictures: E[x|z], or a draw of x, for draws of z."""

    def one(key: PRNGKey, context: PyTree) -> Float[Array, " features"]:
        key_z, key_x = jax.random.split(key)
        own = given(model, context)
        return _shown(own, key_x, own.sample_prior(key_z))

    return jax.vmap(one)(jax.random.split(key, number), contexts)


@eqx.filter_jit
def reconstructions(
    key: PRNGKey, model: Model, proposal: Proposal, xs: PyTree
) -> Float[Array, "number features"]:
    """Draw a latent from the proposal of each example, and return E[x|z] or a draw of x."""

    def one(key: PRNGKey, example: PyTree) -> Float[Array, " features"]:
        key_z, key_x = jax.random.split(key)
        own, encoder, x = bind(model, proposal, example)
        return _shown(own, key_x, encoder(x).sample(key_z))

    return jax.vmap(one)(jax.random.split(key, len(jax.tree.leaves(xs)[0])), xs)


def _shown(model: Model, key: PRNGKey, z: object) -> Float[Array, " features"]:
    """Return E[x|z] of models that have `mean_observation`, and a draw of x from others."""
    mean = getattr(model, "mean_observation", None)
    return jnp.ravel(model.sample_observation(key, z) if mean is None else mean(z))


def sample_panel(key: PRNGKey, model: Model, number: int, contexts: PyTree = None) -> Panel:
    """Return a panel of samples from a model, one for each context if there are any."""
    return Panel("samples", np.asarray(sample_observations(key, model, number, contexts)))


def reconstruction_panel(key: PRNGKey, model: Model, proposal: Proposal, examples: PyTree) -> Panel:
    """Return a panel of examples with their reconstructions below them, row by row."""
    xs, _ = parts_of(examples)
    xs = np.reshape(xs, (len(xs), -1))
    columns = min(_COLUMNS, len(xs))
    # Blanks fill the last row, so that each example is above its own reconstruction.
    blanks = ((0, 0), (0, -len(xs) % columns), (0, 0))
    pairs = np.stack([xs, reconstructions(key, model, proposal, examples)])
    rows = np.pad(pairs, blanks, constant_values=np.nan).reshape(2, -1, columns, xs.shape[1])
    title = "held-out examples, each above its reconstruction"
    return Panel(title, rows.swapaxes(0, 1).reshape(-1, xs.shape[1]), columns)


def picture_size(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return height, width and channels, 1 or 3 and last if given; None if it is no picture."""
    size = (*shape, 1) if len(shape) == 2 else shape
    return size if len(size) == 3 and size[2] in (1, 3) else None


def save_panels(path: Path, panels: list[Panel], shape: tuple[int, ...]) -> None:
    """Draw panels side by side as PNG.

    Examples that are no pictures become strips with a field for each feature, which is the darker,
    the larger the value is among all values of this feature.
    """
    size = picture_size(shape)
    if size is None:
        values = np.concatenate([panel.examples for panel in panels])
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        width = np.maximum(high - low, 1e-12)
        panels = [
            panel._replace(examples=np.tile((panel.examples - low) / width, _STRIP))
            for panel in panels
        ]
    figure = Figure(figsize=(5 * len(panels), 5.4))
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_title(panel.title)
        axes.set_axis_off()
        shares = _grid(panel, size or (_STRIP, panel.examples.shape[1] // _STRIP, 1))
        # Ink on white for one channel, light for three; white where there is nothing.
        light = np.nan_to_num(shares if shares.shape[2] == 3 else 1 - shares, nan=1.0)
        pixels = np.broadcast_to(light, (*light.shape[:2], 3))
        axes.imshow(pixels, interpolation="nearest", aspect="equal" if size else "auto")
    save_figure(figure, path, dpi=150)


def save_figure(figure: Figure, path: Path, *, dpi: int) -> None:
    """Write a figure as PNG, whole or not at all."""
    with writing(path) as part:
        figure.savefig(part, format="png", dpi=dpi)


def image_url(panel: Panel, size: tuple[int, int, int]) -> str:
    """Return a panel as a PNG image in a data URL, on a transparent ground.

    Colours are opaque. One channel is black ink, which a page in dark mode can invert.
    """
    shares = _grid(panel, size)
    is_there = np.isfinite(shares[..., :1])
    if shares.shape[2] == 1:
        planes = [0 * shares, _GROUND + (1 - _GROUND) * shares]
    else:
        planes = [shares, is_there]
    pixels = np.nan_to_num(255 * np.concatenate(planes, axis=2)).round().astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _grid(panel: Panel, size: tuple[int, int, int]) -> np.ndarray:
    """Return one array (height, width, channels) of values from 0 to 1, with NaN between pictures.

    Values beyond 0 and 1 are scaled by their range.
    """
    values = panel.examples.reshape(-1, *size)
    low, high = np.nanmin(values, initial=0), np.nanmax(values, initial=1)
    step = math.ceil(max(size) / _MOST_SIDE)
    pictures = ((values - low) / (high - low))[:, ::step, ::step]
    rows = math.ceil(len(pictures) / panel.columns)
    gap = 1 + max(size[:2]) // step // 28
    places = np.full((rows * panel.columns, *pictures.shape[1:]), np.nan)
    places[: len(pictures)] = pictures
    padded = np.pad(places, ((0, 0), (0, gap), (0, gap), (0, 0)), constant_values=np.nan)
    by_row = padded.reshape(rows, panel.columns, *padded.shape[1:]).swapaxes(1, 2)
    grid = by_row.reshape(rows * padded.shape[1], -1, size[2])
    return grid[:-gap, :-gap]
