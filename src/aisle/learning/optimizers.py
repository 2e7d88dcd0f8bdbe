"""Optimisers and learning-rate schedules, by name."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from aisle.errors import InputError

# The IWAE study's for Adam; Muon's is the rate of the matrices.
DEFAULT_RATES = {"adam": 1e-3, "muon": 0.02}

# Vectors beside Muon's matrices learn by Adam, at this share of the matrices' rate.
_MUON_ADAM_SHARE = 0.05


def optimizer(
    name: str,
    schedule: str,
    *,
    learning_rate: float | None,
    num_epochs: int,
    updates_per_epoch: int,
) -> optax.GradientTransformation:
    """Return an optimiser whose rate follows `schedule`; None takes the optimiser's usual rate."""
    if name not in DEFAULT_RATES:
        raise InputError(f"optimizer is {name!r}: choose from {', '.join(DEFAULT_RATES)}")
    rate = DEFAULT_RATES[name] if learning_rate is None else learning_rate
    if not rate > 0:
        raise InputError(f"learning_rate is {rate:g}: it must be positive")
    curve = rate_schedule(schedule, rate, num_epochs, updates_per_epoch)
    if name == "adam":
        return optax.adam(curve, eps=1e-4)
    return contrib.muon(
        curve,
        adam_learning_rate=lambda count: _MUON_ADAM_SHARE * curve(count),
        muon_weight_dimension_numbers=_matrices,
    )


def rate_schedule(
    name: str, rate: float, num_epochs: int, updates_per_epoch: int
) -> optax.Schedule:
    """Return the learning rate as a function of the number of updates made."""
    if name not in SCHEDULES:
        raise InputError(f"lr_schedule is {name!r}: choose from {', '.join(SCHEDULES)}")
    return SCHEDULES[name](rate, num_epochs, updates_per_epoch)


def _iwae_study(rate: float, num_epochs: int, updates_per_epoch: int) -> optax.Schedule:
    """Rate x 10^(-i/7) for 3^i epochs, i = 0..7: 3,280 epochs in all."""
    del num_epochs
    ends = [(3 ** (i + 1) - 1) // 2 * updates_per_epoch for i in range(7)]
    boundaries: dict[int, float] = dict.fromkeys(ends, 10 ** (-1 / 7))
    return optax.piecewise_constant_schedule(rate, boundaries)


def _cosine(rate: float, num_epochs: int, updates_per_epoch: int) -> optax.Schedule:
    return optax.cosine_decay_schedule(rate, max(1, num_epochs * updates_per_epoch))


def _constant(rate: float, num_epochs: int, updates_per_epoch: int) -> optax.Schedule:
    del num_epochs, updates_per_epoch
    return optax.constant_schedule(rate)


SCHEDULES: dict[str, Callable[[float, int, int], optax.Schedule]] = {
    "iwae-study": _iwae_study,
    "cosine": _cosine,
    "constant": _constant,
}


def _matrices(params: optax.Params) -> optax.Params:
    """Mark matrices as (outputs, inputs), Equinox's order; the rest is left to Adam."""
    dimensions = contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)
    return jax.tree.map(lambda a: dimensions if jnp.ndim(a) == 2 else None, params)
