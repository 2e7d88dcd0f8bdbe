"""Walk over examples in tiles: sharded over devices, kept on disk, stopped and continued.

What is computed of an example depends on its index and the key alone. How many examples make a
tile, how many devices share it and where a killed run went on changes nothing but rounding.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from aisle import processes
from aisle.annealing.tiles import map_tiles
from aisle.compilation import compiler_options, remembered
from aisle.errors import InputError
from aisle.evaluation.folders import load_arrays, save_arrays
from aisle.files import remove_leftovers
from aisle.progress import Progress
from aisle.types import PRNGKey

# Of one example: `(context, key, x) -> numbers`. The context is a pytree such as (model, kernel).
Numbers = dict[str, Any]
ExampleFunction = Callable[[Any, PRNGKey, Any], Numbers]


class Job(NamedTuple):
    """What to compute of which examples.

    Attributes:
        name: shown beside the bar.
        function: of one example. A figure whose name starts with "mean_" is averaged over the
            examples on the way, as it would be too large to keep; the others are kept.
        context: what all examples share.
        key: root of the draws; an example's own is folded from it and its index.
        xs: observations along the first axis of each leaf, or None if the function makes its own.
        indices: number of each example.
        gradients: of log p(x, z) that an example costs, for the speed shown.
        preferred: examples that a device would take at once.
    """

    name: str
    function: ExampleFunction
    context: PyTree
    key: PRNGKey
    xs: PyTree
    indices: np.ndarray
    gradients: int
    preferred: int


class Outcome(NamedTuple):
    """Numbers of examples: of a tile, or of all tiles together, which are in the job's order.

    Attributes:
        indices: numbers of the examples, less than asked for if the deadline came first.
        numbers: with an axis of examples. Those to average over examples have one row in a tile,
            their sum, and no such axis for all tiles together.
        seconds: spent computing, before and after interruptions.
    """

    indices: np.ndarray
    numbers: dict[str, np.ndarray]
    seconds: float


def walk(
    job: Job,
    folder: Path | None = None,
    *,
    memory: int = 512 * 2**20,
    deadline: float | None = None,
    show_progress: bool = True,
) -> Outcome:
    """Compute a job's numbers, going on from the tiles that `folder` already has.

    Args:
        job: what to compute.
        folder: where tiles are kept, if anywhere.
        memory: bytes that a tile's temporary arrays may take on a device.
        deadline: value of `time.perf_counter` at which to stop after the next tile.
        show_progress: whether to draw a progress bar.
    """
    done = [] if folder is None else read_tiles(folder)
    # Another walk of more examples may have left its own here.
    done = [tile for tile in done if np.isin(tile.indices, job.indices).any()]
    seen = np.concatenate([tile.indices for tile in done]) if done else np.zeros(0, int)
    left = np.flatnonzero(~np.isin(job.indices, seen))
    # The same in all processes: one that went on alone would wait for the others for ever.
    if processes.largest(len(left)) != -processes.largest(-len(left)):
        raise InputError(f"the processes do not see the same files in {folder}: use a shared disk")
    if deadline is not None:
        # Examples may be in order of their classes: a part of them should be like all.
        left = np.random.default_rng(0).permutation(left)
    first, number = len(job.indices) - len(left), len(job.indices)
    bar = Progress(
        number,
        job.name,
        "gradients" if job.gradients else "examples",
        units_per_step=job.gradients or 1,
        first=first,
        is_shown=show_progress and len(left) > 0 and processes.is_first(),
    )
    with bar as progress:
        for tile in _tiles(job, left, memory):
            done.append(tile)
            if folder is not None:
                processes.first_does(lambda tile=tile: write_tile(folder, tile))
            first += len(tile.indices)
            progress.advance(first, job.name, f"{first:,}/{number:,}")
            if is_late(deadline):
                break
    return _together(job, done)


def write_tile(folder: Path, tile: Outcome) -> None:
    """Write a tile, whole or not at all, named by its first example."""
    arrays = {"index": tile.indices, "seconds": np.array(tile.seconds), **tile.numbers}
    save_arrays(folder / f"{int(tile.indices[0]):08d}.npz", arrays)


def read_tiles(folder: Path) -> list[Outcome]:
    """Read the tiles of a folder; one that is damaged is as good as not there."""
    remove_leftovers(folder)
    tiles = []
    for path in sorted(folder.glob("*.npz")):
        arrays = load_arrays(path) or {}
        if {"index", "seconds"} <= arrays.keys():
            indices, seconds = arrays.pop("index"), float(arrays.pop("seconds"))
            tiles.append(Outcome(indices, arrays, seconds))
    return tiles


def is_late(deadline: float | None, seconds: float = 0.0) -> bool:
    """Say whether so many seconds from now are after the deadline; all processes say the same."""
    if deadline is None:
        return False
    return bool(processes.largest(int(time.perf_counter() + seconds > deadline)))


def _tiles(job: Job, left: np.ndarray, memory: int) -> Iterator[Outcome]:
    """Yield the numbers of the examples at the places `left`, tile by tile."""
    if not len(left):
        return
    start = time.perf_counter()
    mesh = jax.sharding.Mesh(jax.devices(), ("examples",))
    arrays, static = eqx.partition(job.context, eqx.is_array)
    # Of the whole job, however much of it is left: tiles of another size would round differently.
    each = min(job.preferred, -(-len(job.indices) // mesh.size))
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (arrays, job.xs))
    # An evaluation of the same shapes finds its programs again.
    run, size = remembered(
        (job.function, static, shapes, mesh, each, memory),
        lambda: _compile(job, arrays, static, mesh, memory, each),
    )
    everywhere = jax.NamedSharding(mesh, jax.P())
    arrays, key = processes.place((arrays, job.key), everywhere)
    for begin in range(0, len(left), size):
        places = left[begin : begin + size]
        # The last tile is filled up with copies, which are dropped again.
        filled = np.resize(places, size)
        numbers = processes.gather(run(arrays, key, *_slice(job, filled, mesh)))
        numbers = {name: a[: len(places)] for name, a in numbers.items()}
        for name in filter(is_averaged, numbers):
            numbers[name] = numbers[name].sum(0, np.float64, keepdims=True)
        yield Outcome(job.indices[places], numbers, time.perf_counter() - start)
        start = time.perf_counter()


def _together(job: Job, tiles: list[Outcome]) -> Outcome:
    """Put tiles together in the order of the job's examples."""
    tiles = sorted(tiles, key=lambda tile: int(tile.indices[0]))
    seconds = sum(tile.seconds for tile in tiles)
    place = {int(index): i for i, index in enumerate(np.concatenate([t.indices for t in tiles]))}
    indices = job.indices[np.isin(job.indices, list(place))]
    order = [place[int(index)] for index in indices]
    numbers = {}
    for name in tiles[0].numbers:
        rows = np.concatenate([tile.numbers[name] for tile in tiles])
        numbers[name] = rows.sum(0) / len(place) if is_averaged(name) else rows[order]
    return Outcome(indices, numbers, seconds)


def is_averaged(name: str) -> bool:
    """Say whether a number is averaged over examples on the way."""
    return name.startswith("mean_")


def _compile(
    job: Job, arrays: PyTree, static: PyTree, mesh: jax.sharding.Mesh, memory: int, each: int
) -> tuple[Callable[..., Numbers], int]:
    """Compile the job for tiles of the preferred size, or of one that fits the memory."""
    function = job.function

    def local(arrays: PyTree, key: PRNGKey, indices: Any, xs: PyTree) -> Numbers:
        context = eqx.combine(arrays, static)

        def example(index: Any, x: PyTree) -> Numbers:
            return function(context, jax.random.fold_in(key, index), x)

        return jax.vmap(example)(indices, xs)

    over = jax.P("examples")
    sharded = jax.jit(
        jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(jax.P(), jax.P(), over, over),
            out_specs=over,
            check_vma=False,
        ),
        compiler_options=compiler_options(),
    )
    while True:
        size = each * mesh.size
        example = _slice(job, np.resize(np.arange(len(job.indices)), size), mesh)
        compiled = sharded.lower(arrays, job.key, *example).compile()
        analysis = compiled.memory_analysis()
        used = 0 if analysis is None else analysis.temp_size_in_bytes
        if used <= memory or each == 1:
            return compiled, size
        each = max(1, min(each - 1, each * memory // used))


def _slice(job: Job, places: np.ndarray, mesh: jax.sharding.Mesh) -> tuple[Any, PyTree]:
    """Place some examples and their numbers on the devices."""
    chosen = (job.indices[places].astype(np.int32), jax.tree.map(lambda a: a[places], job.xs))
    return processes.place(chosen, jax.NamedSharding(mesh, jax.P("examples")))


def map_chains(function: Callable[[PRNGKey], Numbers], key: PRNGKey, number: int) -> Numbers:
    """Run chains whose keys depend on their number only, a bounded number at a time."""
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(number))
    return map_tiles(function, keys, MAX_CHAINS)


# Chains that a device walks at once: their activations stay in the cache.
MAX_CHAINS = 1024
# Gradients of a device between two tiles, seconds to a minute: what a kill can cost.
_GRADIENTS_PER_TILE = 2_000_000


def preferred_examples(num_chains: int, gradients_per_chain: int) -> int:
    """Return how many examples a device should take at once."""
    chains = min(MAX_CHAINS, max(128, _GRADIENTS_PER_TILE // max(1, gradients_per_chain)))
    return max(1, chains // num_chains)
