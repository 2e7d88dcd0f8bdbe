"""The gradient of log p(x|z) by each family of likelihoods, as a multiple of Bernoulli's time.

`python -m benchmarks.likelihoods` prints and writes `benchmarks/likelihoods.md`. Its columns are
the gradient with respect to the decoder's output, of 784 numbers, and with respect to z through a
decoder 50-200-200-784, which is what HMC computes. Where a feature takes several outputs, there are
so many fewer features.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from aisle.cli.output import markdown_table, write_json
from aisle.compilation import compiler_options
from aisle.models.likelihoods import (
    Bernoulli,
    Beta,
    Categorical,
    Columns,
    Gaussian,
    LogitNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    ZeroInflatedNegativeBinomial,
)
from aisle.models.networks import MLP
from aisle.provenance import provenance
from benchmarks.measure import best_seconds

PLACE = Path(__file__).with_suffix(".md")
BATCH, OUTPUTS, LATENTS, REPEATS = 512, 784, 50, 40


def families(random: np.random.Generator) -> dict[str, Any]:
    """Return a likelihood and examples of each family."""

    def size(outputs: int) -> tuple[int, int]:
        return BATCH, OUTPUTS // outputs

    bits = random.integers(0, 2, size(1))
    letters = random.integers(0, 4, size(4))
    uneven = random.integers(0, np.tile([2, 5], OUTPUTS // 7), (BATCH, 2 * OUTPUTS // 7))
    real, half = random.normal(size=size(1)), random.normal(size=size(2))
    counts, few = (random.negative_binomial(2, 0.1, size(n)) for n in (1, 2))
    shares = random.beta(2.0, 3.0, size(1))
    table = np.where(np.arange(OUTPUTS) % 2, real, counts)
    kinds = [(Poisson, range(0, OUTPUTS, 2)), (Gaussian, range(1, OUTPUTS, 2))]
    made = {
        "bernoulli": (Bernoulli.fitted(bits), bits),
        "categorical, 4 levels": (Categorical.fitted(letters), letters),
        "categorical, 2 or 5 levels": (Categorical.fitted(uneven), uneven),
        "gaussian": (Gaussian.fitted(real), real),
        "gaussian, scale of z": (Gaussian.fitted(half, scale="of z"), half),
        "student-t": (StudentT.fitted(real), real),
        "poisson": (Poisson.fitted(counts), counts),
        "negative-binomial": (NegativeBinomial.fitted(counts), counts),
        "zero-inflated": (ZeroInflatedNegativeBinomial.fitted(few), few),
        "logit-normal": (LogitNormal.fitted(shares), shares),
        "beta": (Beta.fitted(shares), shares),
        "columns, poisson and gaussian": (Columns.fitted(table, kinds), table),
    }
    return {name: (fitted[0], np.float32(x)) for name, (fitted, x) in made.items()}


def gradients(likelihood: Any, x: np.ndarray) -> list[Callable[[], Any]]:
    """Return calls of the gradients with respect to the output, and with respect to z."""
    decoder = eqx.filter_jit(MLP)(jax.random.key(0), (LATENTS, 200, 200, OUTPUTS))
    outputs, zs = (
        jax.random.normal(jax.random.key(i), (BATCH, n)) for i, n in enumerate((OUTPUTS, LATENTS))
    )

    def of_output(likelihood: Any, x: jax.Array, output: jax.Array) -> jax.Array:
        return likelihood.log_prob(x, output)

    def of_z(both: Any, x: jax.Array, z: jax.Array) -> jax.Array:
        return both[0].log_prob(x, both[1](z))

    def compiled(function: Any, parts: Any, points: jax.Array) -> Callable[[], Any]:
        arrays, static = eqx.partition(parts, eqx.is_array)

        def batch(arrays: Any, xs: jax.Array, points: jax.Array) -> jax.Array:
            gradient = jax.grad(function, argnums=2)
            return jax.vmap(gradient, (None, 0, 0))(eqx.combine(arrays, static), xs, points)

        lowered = jax.jit(batch).lower(arrays, x, points)
        program, given = lowered.compile(compiler_options()), jax.device_put((arrays, x, points))
        return lambda: program(*given)

    return [compiled(of_output, likelihood, outputs), compiled(of_z, (likelihood, decoder), zs)]


def measured() -> dict[str, list[float]]:
    """Return the best seconds of both gradients by family.

    Families are timed in turns, so that what else the machine does meets all of them.
    """
    calls = {n: gradients(*made) for n, made in families(np.random.default_rng(0)).items()}
    best = {name: [np.inf, np.inf] for name in calls}
    for _ in range(REPEATS):
        for name, pair in calls.items():
            for i, call in enumerate(pair):
                best[name][i] = min(best[name][i], best_seconds(call, repeats=1, warmups=1))
    return best


def main() -> None:
    """Measure all families, print the table and keep it."""
    seconds = measured()
    base = seconds["bernoulli"]
    columns: Any = {"family": "left", "of the output": "right", "of z": "right"}
    rows = [
        [name, *(f"{own / other:.2f}" for own, other in zip(times, base, strict=True))]
        for name, times in seconds.items()
    ]
    first, second = (f"{1e3 * time:.2f} ms" for time in base)
    cost = f"Bernoulli's gradients take {first} and {second} for {BATCH} examples."
    text = f"{(__doc__ or '').strip()}\n\n{markdown_table(columns, rows)}\n\n{cost}\n"
    print(text)
    PLACE.write_text(text)
    write_json(PLACE.with_suffix(".json"), {"seconds": seconds, **provenance()})


if __name__ == "__main__":
    main()
