"""One group of measurements in a process of its own: `python -m benchmarks.worker GROUP`.

A process has one number of devices. The limit is measured again around each figure, as the speed
of a shared machine changes from minute to minute; a figure is a fraction of the faster of the two.
"""

import json
import sys
from collections.abc import Callable, Iterator

import jax

from benchmarks import measure, peers, steps

CELLS = [(1, 5), (1, 11), (5, 5), (5, 11), (50, 5), (50, 11)]
LEAPFROG = 5

Rows = Iterator[dict[str, object]]


def updates() -> Rows:
    """Time updates by annealing."""
    for K, T in CELLS:
        before = measure.matmul_gflops()
        seconds = steps.update_seconds("ais", K, T, LEAPFROG)
        limit = max(before, measure.matmul_gflops())
        chains = K * steps.BATCH
        leapfrog = chains * measure.leapfrog_gflop(1 + T * LEAPFROG)
        everything = steps.BATCH * measure.update_gflop(K * (1 + T * LEAPFROG), K)
        yield {
            "K": K,
            "T": T,
            "seconds": seconds,
            "limit_gflops": limit,
            "leapfrog_fraction": leapfrog / seconds / limit,
            "fraction": everything / seconds / limit,
            "microseconds_per_chain_and_temperature": 1e6 * seconds / chains / T,
        }


def torch() -> Rows:
    """Time plain PyTorch on the same updates."""
    if not peers.is_installed("torch"):
        return
    for K, T in CELLS:
        yield {"K": K, "T": T, "seconds": peers.torch_seconds(K, T, LEAPFROG)}


def blackjax() -> Rows:
    """Time AIS put together from BlackJAX's HMC on the same updates."""
    for K, T in CELLS[:4]:
        yield {"K": K, "T": T, "seconds": peers.blackjax_seconds(K, T, LEAPFROG)}


def baselines() -> Rows:
    """Time vae and dreg."""
    for method, K in (("vae", 1), ("dreg", 5), ("dreg", 50)):
        yield {"method": method, "K": K, "seconds": steps.update_seconds(method, K, 1, 1)}


def optax() -> Rows:
    """Time vae and dreg by a plain loop."""
    for method, K in (("vae", 1), ("dreg", 5), ("dreg", 50)):
        yield {"method": method, "K": K, "seconds": peers.optax_seconds(method, K)}


def memory() -> Rows:
    """Measure the memory of updates."""
    for K, T in ((5, 5), (5, 50), (50, 5), (50, 50)):
        yield {"K": K, "T": T, "bytes": steps.update_memory(K, T, LEAPFROG)}


def evaluation() -> Rows:
    """Time evaluation tiles."""
    for chains, T in ((16, 100), (16, 400)):
        before = measure.matmul_gflops()
        rate = steps.evaluation_rate(chains, T, 4)
        limit = max(before, measure.matmul_gflops())
        fraction = measure.leapfrog_gflop(rate) / limit
        yield {"chains": chains, "T": T, "gradients_per_second": rate, "fraction": fraction}


GROUPS: dict[str, Callable[[], Rows]] = {
    "updates": updates,
    "torch": torch,
    "blackjax": blackjax,
    "baselines": baselines,
    "optax": optax,
    "memory": memory,
    "evaluation": evaluation,
}

if __name__ == "__main__":
    rows = list(GROUPS[sys.argv[1]]())
    print(json.dumps({"devices": jax.device_count(), "rows": rows}))
