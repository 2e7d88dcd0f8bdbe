"""Inverse temperatures placed by what a pilot run has measured."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from paper.core.chains import Betas, schedules


def placed(
    betas: Betas, log_ratios: Float[Array, " temperatures"], num_temperatures: int
) -> Float[Array, " new_points"]:
    """Place temperatures so that each step loses the same, judged by an earlier run.

    A step of width d from beta loses about d^2 m'(beta) / 2 of the log-weight, where m(beta) is the
    mean of log p - log q at beta (were the chains always in equilibrium, exactly so for small d).
    Equal losses need a density of temperatures proportional to the root of m'. The mean log-ratios
    of a run are such an m.

    Args:
        betas: T + 1 inverse temperatures of the run.
        log_ratios: mean over chains of log p - log q at each of betas[:-1], as in `AnnealInfo`.
        num_temperatures: how many to place.
    """
    if len(log_ratios) < 2:
        return jnp.asarray(schedules.linear(num_temperatures))
    widths = jnp.diff(betas)
    slopes = jnp.diff(log_ratios) / jnp.maximum(widths[:-1], 1e-9)
    # Nothing was measured at beta = 1: the last slope stands for the last stretch too.
    slopes = jnp.maximum(jnp.append(slopes, slopes[-1:]), 0)
    # A share of the mean slope keeps a stretch within reach that noise has made flat.
    density = jnp.sqrt(slopes + 0.01 * jnp.sum(slopes * widths) + 1e-9)
    place = jnp.append(0, jnp.cumsum(density * widths))
    grid = jnp.linspace(0, 1, num_temperatures + 1)
    inside = jnp.interp(grid, place / place[-1], betas)
    return inside.at[0].set(0).at[-1].set(1)
