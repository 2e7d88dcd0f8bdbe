"""Grids of samples, of reconstructions and of what lies between examples, as PNG files."""

import math
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from aisle.files import writing
from aisle.types import Model, PRNGKey, Proposal

_COLUMNS = 8


class Panel(NamedTuple):
    """A titled grid of examples, `columns` to a row."""

    title: str
    examples: np.ndarray
    columns: int = _COLUMNS


@eqx.filter_jit
def sample_observations(key: PRNGKey, model: Model, number: int) -> Float[Array, "number features"]:
    """Draw latents from the prior and return what is expected of x for each."""

    def one(key: PRNGKey) -> Float[Array, " features"]:
        key_z, key_x = jax.random.split(key)
        return _shown(model, key_x, model.sample_prior(key_z))

    return jax.vmap(one)(jax.random.split(key, number))


@eqx.filter_jit
def reconstructions(
    key: PRNGKey, model: Model, proposal: Proposal, xs: Float[Array, "number features"]
) -> Float[Array, "number features"]:
    """Draw a latent from the proposal of each example and return what is expected of x for it."""

    def one(key: PRNGKey, x: Float[Array, " features"]) -> Float[Array, " features"]:
        key_z, key_x = jax.random.split(key)
        return _shown(model, key_x, proposal(x).sample(key_z))

    return jax.vmap(one)(jax.random.split(key, len(xs)), xs)


@eqx.filter_jit
def interpolations(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    firsts: Float[Array, "pairs features"],
    lasts: Float[Array, "pairs features"],
    number: int,
) -> Float[Array, "pairs number features"]:
    """Go from a latent of one example to one of another; return what is expected of x on the way.

    The way is an arc, cos(a) first + sin(a) last: latents that are standard normal stay so on it.
    """

    def pair(
        key: PRNGKey, first: Float[Array, " features"], last: Float[Array, " features"]
    ) -> Float[Array, "number features"]:
        key_first, key_last, key_x = jax.random.split(key, 3)
        ends = proposal(first).sample(key_first), proposal(last).sample(key_last)

        def at(angle: Float[Array, ""]) -> Float[Array, " features"]:
            weights = jnp.cos(angle), jnp.sin(angle)
            z = jax.tree.map(lambda u, v: weights[0] * u + weights[1] * v, *ends)
            return _shown(model, key_x, z)

        return jax.vmap(at)(jnp.linspace(0, jnp.pi / 2, number))

    return jax.vmap(pair)(jax.random.split(key, len(firsts)), firsts, lasts)


def sample_panel(key: PRNGKey, model: Model, number: int) -> Panel:
    """Return a panel of samples from a model."""
    return Panel("samples", np.asarray(sample_observations(key, model, number)))


def reconstruction_panel(key: PRNGKey, model: Model, proposal: Proposal, xs: Array) -> Panel:
    """Return a panel of examples with their reconstructions below them, row by row."""
    columns = min(_COLUMNS, len(xs))
    shown = reconstructions(key, model, proposal, xs)
    # Blanks fill the last row, so that each stands above its own.
    blanks = ((0, 0), (0, -len(xs) % columns), (0, 0))
    pairs = np.pad(np.stack([xs, shown]), blanks, constant_values=np.nan)
    rows = pairs.reshape(2, -1, columns, xs.shape[1]).swapaxes(0, 1)
    return Panel(
        "held-out examples, each above its reconstruction", rows.reshape(-1, xs.shape[1]), columns
    )


def interpolation_panel(key: PRNGKey, model: Model, proposal: Proposal, xs: Array) -> Panel:
    """Return a panel of rows, each on the way from an example of the first half to its partner."""
    half = len(xs) // 2
    shown = interpolations(key, model, proposal, xs[:half], xs[half : 2 * half], _COLUMNS)
    return Panel("from one example to another", np.asarray(shown).reshape(-1, xs.shape[1]))


def save_panels(path: Path, panels: list[Panel], shape: tuple[int, ...]) -> None:
    """Draw panels side by side: pictures for examples that are some, curves for others."""
    figure = Figure(figsize=(5 * len(panels), 5.4))
    figure.set_layout_engine("constrained", wspace=0.06)
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.set_title(panel.title)
        axes.set_axis_off()
        size = picture_size(shape)
        if size is None:
            _draw_curves(axes, panel)
        else:
            _draw_pictures(axes, panel, size)
    save_figure(figure, path, dpi=150)


def picture_size(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return height, width and channels, 1 or 3 and last if given; None if it is no picture."""
    if len(shape) == 2:
        return shape[0], shape[1], 1
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[0], shape[1], shape[2]
    return None


def save_figure(figure: Figure, path: Path, *, dpi: int) -> None:
    """Write a figure as PNG, whole or not at all."""
    with writing(path) as part:
        figure.savefig(part, format="png", dpi=dpi)


def _shown(model: Model, key: PRNGKey, z: object) -> Float[Array, " features"]:
    """Return E[x|z] of models that tell it, and a draw of x from others."""
    mean = getattr(model, "mean_observation", None)
    return jnp.ravel(model.sample_observation(key, z) if mean is None else mean(z))


def _draw_pictures(axes: Axes, panel: Panel, size: tuple[int, int, int]) -> None:
    height, width, channels = size
    rows = math.ceil(len(panel.examples) / panel.columns)
    # One blank pixel between neighbours.
    canvas = np.full((rows * (height + 1) - 1, panel.columns * (width + 1) - 1, channels), np.nan)
    for i, example in enumerate(panel.examples):
        row, column = divmod(i, panel.columns)
        top, left = row * (height + 1), column * (width + 1)
        canvas[top : top + height, left : left + width] = example.reshape(size)
    shares = canvas.clip(min=0) / np.nanmax(canvas, initial=1)
    # Ink on white for one channel, light for three; white where there is nothing.
    light = np.nan_to_num(shares if channels == 3 else 1 - shares, nan=1.0)
    axes.imshow(np.broadcast_to(light, (*light.shape[:2], 3)), interpolation="nearest")


def _draw_curves(axes: Axes, panel: Panel) -> None:
    low, high = np.nanmin(panel.examples), np.nanmax(panel.examples)
    unit = (panel.examples - low) / max(high - low, 1e-12)
    steps = np.linspace(0, 0.9, panel.examples.shape[1])
    for i, curve in enumerate(unit):
        row, column = divmod(i, panel.columns)
        axes.plot(column + steps, 0.9 * curve - row, color="black", linewidth=0.6)
