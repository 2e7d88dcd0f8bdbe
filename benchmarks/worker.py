"""One group of measurements in a process of its own: `python -m benchmarks.worker GROUP`.

A process has one number of devices. The limit is measured again around each number, as the speed
of a shared machine changes from minute to minute; a number is a fraction of the faster of the two.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator

import jax

from aisle.learning import AIS, Adam, Muon
from aisle.learning.optimizers import Optimizer
from benchmarks import measure, peers, steps

CELLS = [(1, 5), (1, 11), (5, 5), (5, 11), (50, 5), (50, 11)]
LEAPFROG = 5

Rows = Iterator[dict[str, object]]


def updates() -> Rows:
    """Time updates by annealing."""
    for K, T in CELLS:
        before = measure.matmul_gflops()
        gflop = measure.update_gflop(K * (1 + T * LEAPFROG), K)
        seconds, _ = steps.update_cost(steps.annealing(K, T, LEAPFROG), gflop)
        limit = max(before, measure.matmul_gflops())
        chains = K * steps.BATCH
        leapfrog = chains * measure.leapfrog_gflop(1 + T * LEAPFROG)
        everything = steps.BATCH * gflop
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


def numpyro() -> Rows:
    """Time NumPyro's differentiable annealing with as many leapfrog steps."""
    for K, T in CELLS[:4]:
        yield {"K": K, "T": T, "seconds": peers.numpyro_seconds(K, T, LEAPFROG)}


def baselines() -> Rows:
    """Time vae and dreg."""
    for method, K in (("vae", 1), ("dreg", 5), ("dreg", 50)):
        gflop = measure.update_gflop(2 * K, K)
        seconds, _ = steps.update_cost(steps.baseline(method, K), gflop)
        yield {"method": method, "K": K, "seconds": seconds}


def optax() -> Rows:
    """Time vae and dreg by a plain loop."""
    for method, K in (("vae", 1), ("dreg", 5), ("dreg", 50)):
        yield {"method": method, "K": K, "seconds": peers.optax_seconds(method, K)}


def scaling() -> Rows:
    """Measure time and memory of updates against K and T."""
    for K, T in (*((K, 11) for K in (1, 5, 20, 50)), *((5, T) for T in (5, 25, 50)), (50, 50)):
        gflop = measure.update_gflop(K * (1 + T * LEAPFROG), K)
        seconds, size = steps.update_cost(steps.annealing(K, T, LEAPFROG), gflop, repeats=3)
        yield {"K": K, "T": T, "seconds": seconds, "bytes": size}


def evaluation() -> Rows:
    """Time evaluation tiles."""
    for chains, T in ((16, 100), (16, 400)):
        before = measure.matmul_gflops()
        rate = steps.evaluation_rate(chains, T, 4)
        limit = max(before, measure.matmul_gflops())
        fraction = measure.leapfrog_gflop(rate) / limit
        yield {"chains": chains, "T": T, "gradients_per_second": rate, "fraction": fraction}


def networks() -> Rows:
    """Time evaluation tiles of each kind of networks, against bare gradients and the limit."""
    for name, own in steps.families().items():
        before = measure.matmul_gflops()
        bare, gflop = steps.bare_rate(own[0])
        # Smaller tiles than those of an evaluation, of which convolutions take minutes.
        rate = steps.evaluation_rate(16, 25, 4, own, each=64)
        limit = max(before, measure.matmul_gflops())
        yield {
            "network": name,
            "gradients_per_second": rate,
            "of_bare_gradients": rate / bare,
            "fraction": rate * gflop / limit,
        }


def muon() -> Rows:
    """Time the default recipe's updates, with each network stepped on one device or on all."""
    method, gflop = AIS(1, 11), measure.update_gflop(1 + 11 * 2, 1)
    optimizers: dict[str, Optimizer] = {
        "adam": Adam(1e-4),
        "muon": Muon(1e-4),
        "muon, on all devices": _OnAll(1e-4),
    }
    for name, optimizer in optimizers.items():
        seconds, _ = steps.update_cost(method, gflop, optimizer=optimizer)
        yield {"optimizer": name, "seconds": seconds}
    half = dataclasses.replace(method, precision="bfloat16")
    seconds, _ = steps.update_cost(half, gflop, optimizer=optimizers["muon"])
    yield {"optimizer": "muon, chains in bfloat16", "seconds": seconds}


class _OnAll(Muon):
    is_shared_out = False


GROUPS: dict[str, Callable[[], Rows]] = {
    "updates": updates,
    "torch": torch,
    "blackjax": blackjax,
    "numpyro": numpyro,
    "baselines": baselines,
    "optax": optax,
    "scaling": scaling,
    "evaluation": evaluation,
    "networks": networks,
    "muon": muon,
}

if __name__ == "__main__":
    rows = list(GROUPS[sys.argv[1]]())
    print(json.dumps({"devices": jax.device_count(), "rows": rows}))
