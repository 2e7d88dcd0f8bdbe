"""The gradient of log p(x) and the posterior mean of log p(x, z), by long runs."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.statistics import Mean, summarise
from paper.core.chains import (
    EVALUATION,
    Kernel,
    betas_of,
    first_kernel,
    gradients_per_chain,
    normalised_weights,
    tune_between,
    walk_gradients,
)
from paper.core.trained import load_arrays, save_arrays
from paper.gradients.averages import average, chain_stops, make_program
from paper.gradients.bench import Bench
from paper.gradients.bias import squared_norm
from paper.gradients.estimators import WEIGHTINGS, Shares


class Reference(NamedTuple):
    """The posterior means, from long runs.

    Attributes:
        gradients: of mean log p(x), of each part.
        log_joint: mean of log p(x, z) of each part and example.
        log_joint_unweighted: the same of all chains together, with equal weights.
        effective_share: effective sample size of a part as a share of its samples, by example.
    """

    gradients: Float[np.ndarray, "parts parameters"]
    log_joint: Float[np.ndarray, "parts examples"]
    log_joint_unweighted: Float[np.ndarray, " examples"]
    effective_share: Float[np.ndarray, " examples"]

    @property
    def norm(self) -> float:
        """Norm of the gradient, without what noise adds to it."""
        return math.sqrt(max(squared_norm(self.gradients), 0.0))

    @property
    def relative_noise(self) -> float:
        """Noise of the mean over the parts, as a share of the norm."""
        variance = np.sum(self.gradients.var(axis=0, ddof=1, dtype=np.float64))
        return math.sqrt(variance / len(self.gradients)) / self.norm

    @property
    def weights_change(self) -> Mean:
        """By how much the weights move the mean of log p(x, z), in nats: 0 in equilibrium."""
        return summarise(self.log_joint.mean(axis=0) - self.log_joint_unweighted)


def find(bench: Bench) -> Reference:
    """Read the reference, or run its chains."""
    file = None if bench.folder is None else bench.folder / "reference.npz"
    stored = None if file is None else load_arrays(file)
    if stored is None or stored.keys() != set(Reference._fields):
        stored = _run_reference(bench)._asdict()
        if file is not None:
            save_arrays(file, stored)
    return Reference(**stored)


def _run_reference(bench: Bench) -> Reference:
    """Run the chains of all parts at once, and let each weighting see one part only."""
    settings, kernel = bench.settings, _kernel(bench)
    num_parts, stops = settings.reference_parts, settings.reference_stops
    walk = (stops, settings.reference_moves)
    weigh = partial(_weigh_parts, num_parts, stops)
    program = make_program(bench.model, bench.proposal, weigh, partial(chain_stops, *walk))
    cost = kernel.num_samples * (gradients_per_chain(kernel) + walk_gradients(*walk, kernel))
    meter = bench.meter([cost])
    with meter.progress:
        spend = partial(meter.spend, "reference", cost)
        found = average(program, kernel, bench.key("reference"), bench.examples, spend)
    sizes = found.effective_sample_size[:num_parts].mean(axis=0)
    return Reference(
        found.gradients[:num_parts],
        found.log_joint[:num_parts],
        found.log_joint[num_parts],
        sizes / (settings.reference_chains * stops),
    )


def _kernel(bench: Bench) -> Kernel:
    settings, preset = bench.settings, bench.preset(EVALUATION, "tuned")
    betas = betas_of(preset.schedule, settings.reference_temperatures)
    kernel = first_kernel(preset, betas, settings.reference_parts * settings.reference_chains)
    key, networks = bench.key("reference", "pilot"), (bench.model, bench.proposal)
    return tune_between(key, *networks, bench.pilot_xs, kernel, preset)


def _weigh_parts(
    num_parts: int, num_stops: int, log_weights: Shares
) -> Float[Array, "weightings samples"]:
    """Return the shares of each part's chains with all their stops, and then those of all."""
    chain = jnp.arange(len(log_weights)) // num_stops
    is_own = (chain % num_parts)[None] == jnp.arange(num_parts)[:, None]
    own = jax.vmap(normalised_weights)(jnp.where(is_own, log_weights[None], -jnp.inf))
    return jnp.concatenate([own, WEIGHTINGS["equal"](log_weights)[None]])
