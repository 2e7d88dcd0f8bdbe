"""How long something takes, against matrix multiplication of the same arithmetic."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

# Of the large square product that is the limit.
SIZES = (2048, 3072)

# Multiply-adds of the networks of the IWAE study, for one example.
DECODER = 50 * 200 + 200 * 200 + 200 * 784
ENCODER = 784 * 200 + 200 * 200 + 200 * 2 * 50


def best_seconds(call: Callable[[], object], *, repeats: int = 5, warmups: int = 1) -> float:
    """Return the shortest of some timings: what the machine can do when left alone."""
    times = []
    for i in range(warmups + repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        if i >= warmups:
            times.append(time.perf_counter() - start)
    return min(times)


def matmul_gflops() -> float:
    """Return the speed of single-precision matrix multiplication at its best, here and now."""
    return max(max(_numpy_gflops(n), _jax_gflops(n)) for n in SIZES)


def leapfrog_gflop(num_gradients: float) -> float:
    """Return the arithmetic of gradients of log p in z: three products forward, three back."""
    return num_gradients * 4 * DECODER / 1e9


def update_gflop(num_gradients: float, num_ends: int) -> float:
    """Return the arithmetic of an example's update by annealing, all matrix products counted.

    The chains; for theta the decoder at each chain's end with its backward pass; for phi the
    encoder with its backward pass and one gradient in z.
    """
    theta, phi = num_ends * 6 * DECODER, 4 * DECODER + 6 * ENCODER
    return leapfrog_gflop(num_gradients) + (theta + phi) / 1e9


def _numpy_gflops(n: int) -> float:
    a = np.random.default_rng(0).random((n, n), np.float32)
    out = np.empty_like(a)
    return 2 * n**3 / best_seconds(lambda: np.dot(a, a, out=out)) / 1e9


def _jax_gflops(n: int) -> float:
    a = jax.random.uniform(jax.random.key(0), (n, n))
    product = jax.jit(jnp.dot)
    return 2 * n**3 / best_seconds(lambda: product(a, a)) / 1e9
