import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.errors import InputError
from aisle.evaluation import work
from aisle.evaluation.work import (
    Job,
    map_chains,
    preferred_examples,
    read_tiles,
    walk,
    write_tile,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

KEY, FACTOR = jax.random.key(3), jnp.array(2.5)
DEVICES = jax.devices()
LIMITS = {"memory": 2**30, "show_progress": False}
PAST = LIMITS | {"deadline": 0.0}
NUM_EXAMPLES = 21
# Rows with their numbers, in no order and with gaps.
INDICES = np.random.default_rng(0).permutation(1000)[:NUM_EXAMPLES]
XS = {"a": np.linspace(-1, 3, 3 * NUM_EXAMPLES, dtype=np.float32).reshape(-1, 3), "b": INDICES}

# How often the function of a job was traced.
TRACES = []


def describe(context, key, x):
    TRACES.append(1)
    draw = jax.random.uniform(key, (2,))
    return {"draw": draw, "b": x["b"], "mean_draw": draw, "mean_a": context["factor"] * x["a"]}


def make_job(chosen=slice(None), **changes):
    """A job of some of the examples."""
    job = Job(
        name="some work",
        function=describe,
        # Not only arrays.
        context={"factor": FACTOR, "label": "fixed"},
        key=KEY,
        xs=jax.tree.map(lambda a: a[chosen], XS),
        indices=INDICES[chosen],
        gradients=0,
        preferred=1,
    )
    return job._replace(**changes)


def draws_of(indices):
    """What each example draws, written out: its key is of its number and nothing else."""
    return np.array([jax.random.uniform(jax.random.fold_in(KEY, int(i)), (2,)) for i in indices])


@pytest.fixture(scope="module")
def reference(quick_compilation):
    return walk(make_job(), **LIMITS)


def assert_whole(outcome, chosen=slice(None)):
    """Check the numbers of `describe`, which no device rounds differently."""
    indices = INDICES[chosen]
    np.testing.assert_array_equal(outcome.indices, indices)
    np.testing.assert_array_equal(outcome.numbers["draw"], draws_of(indices))
    np.testing.assert_array_equal(outcome.numbers["b"], indices)
    np.testing.assert_allclose(outcome.numbers["mean_draw"], draws_of(indices).mean(0), rtol=1e-6)
    np.testing.assert_allclose(outcome.numbers["mean_a"], 2.5 * XS["a"][chosen].mean(0), rtol=1e-6)


def test_numbers_are_those_of_each_example(reference):
    """With eight devices: two tiles of eight and one of five, filled up."""
    assert len(DEVICES) == 8
    assert_whole(reference)
    assert reference.numbers["mean_draw"].dtype == np.float64
    assert reference.seconds > 0


@pytest.mark.parametrize(("num_devices", "preferred"), [(1, 1), (1, 4), (3, 2), (8, 100)])
def test_devices_and_tiles_do_not_matter(monkeypatch, num_devices, preferred):
    monkeypatch.setattr(jax, "devices", lambda: DEVICES[:num_devices])
    assert_whole(walk(make_job(preferred=preferred), **LIMITS))


@pytest.mark.parametrize(
    "chosen", [[20], [3, 1, 2], np.argsort(INDICES), slice(None, None, -2)], ids=str
)
def test_neither_does_the_order_or_what_else_there_is(chosen):
    assert_whole(walk(make_job(chosen), **LIMITS), chosen)


def test_there_may_be_no_observations():
    job = make_job(function=lambda c, key, x: {"draw": jax.random.uniform(key, (2,))}, xs=None)
    found = walk(job, **LIMITS)
    np.testing.assert_array_equal(found.numbers["draw"], draws_of(INDICES))


@pytest.mark.parametrize("other", [NUM_EXAMPLES - 8, NUM_EXAMPLES + 8])
def test_a_process_that_sees_other_files_is_told_in_all_of_them(monkeypatch, tmp_path, other):
    """Whether it has more left to do than this one, or less."""
    monkeypatch.setattr(work.processes, "largest", lambda n: max(n, other if n > 0 else -other))
    with pytest.raises(InputError, match=r"do not see the same files in .*: use a shared disk"):
        walk(make_job(), tmp_path, **LIMITS)


def files_of(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_finished_tiles_are_kept_and_not_done_again(tmp_path, reference):
    folder = tmp_path / "parts"
    first = walk(make_job(), folder, **LIMITS)
    assert_whole(first)
    names = [f"{INDICES[begin]:08d}.npz" for begin in (0, 8, 16)]
    kept = files_of(folder)
    assert sorted(kept) == sorted(names)
    assert sorted(len(tile.indices) for tile in read_tiles(folder)) == [5, 8, 8]
    num_traces = len(TRACES)
    again = walk(make_job(), folder, **LIMITS)
    assert_whole(again)
    assert len(TRACES) == num_traces
    assert files_of(folder) == kept
    # The time that it took then, not now.
    assert again.seconds == pytest.approx(first.seconds)


def damage(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("missing", [(0,), (16,), (0, 8), (0, 8, 16)], ids=str)
@pytest.mark.parametrize("harm", [Path.unlink, damage])
def test_what_is_missing_is_done_again(tmp_path, reference, missing, harm):
    walk(make_job(), tmp_path, **LIMITS)
    kept = files_of(tmp_path)
    names = [f"{INDICES[begin]:08d}.npz" for begin in missing]
    for name in names:
        harm(tmp_path / name)
    assert_whole(walk(make_job(), tmp_path, **LIMITS))
    after = files_of(tmp_path)
    assert after.keys() == kept.keys()
    assert {name for name in kept if after[name] != kept[name]} == set(names)


def test_what_is_there_is_believed(tmp_path):
    """A figure that was stored is the one returned."""
    walk(make_job(), tmp_path, **LIMITS)
    tile = next(tile for tile in read_tiles(tmp_path) if INDICES[8] in tile.indices)
    moved = tile.numbers["draw"] + 100
    write_tile(tmp_path, tile._replace(numbers={**tile.numbers, "draw": moved}))
    found = walk(make_job(), tmp_path, **LIMITS).numbers["draw"]
    shift = np.zeros(NUM_EXAMPLES)
    shift[8:16] = 100
    np.testing.assert_allclose(found, draws_of(INDICES) + shift[:, None], rtol=1e-6)


def multiply(context, key, x):
    """Products whose rounding depends on how many examples a device takes at once."""
    for _ in range(6):
        x = jnp.tanh(context @ x)
    return {"product": x}


def test_going_on_rounds_as_if_nothing_had_happened(tmp_path):
    """Though what is left would fit in a smaller tile."""
    generator = np.random.default_rng(1)
    matrix = jnp.asarray(generator.normal(size=(100, 100)) / 5, jnp.float32)
    job = make_job(
        function=multiply,
        context=matrix,
        xs=generator.normal(size=(33, 100)).astype(np.float32),
        indices=np.arange(33),
        preferred=2,
    )
    whole = walk(job, tmp_path, **LIMITS)
    (tmp_path / "00000032.npz").unlink()
    again = walk(job, tmp_path, **LIMITS)
    assert again.numbers["product"].tobytes() == whole.numbers["product"].tobytes()


def test_more_examples_go_on_from_fewer_and_the_other_way_round(tmp_path):
    """The sums are of all that is there."""
    few, many = make_job(slice(10)), make_job()
    walk(few, tmp_path, **LIMITS)
    assert_whole(walk(many, tmp_path, **LIMITS))
    found = walk(few, tmp_path, **LIMITS)
    np.testing.assert_array_equal(found.indices, INDICES[:10])
    np.testing.assert_array_equal(found.numbers["draw"], draws_of(INDICES[:10]))


def test_seconds_are_those_of_the_examples_that_were_asked_for(tmp_path):
    """A second round goes on in the folder of the first, and must not count it again."""
    first, rest = make_job(slice(8)), make_job(slice(8, None))
    before, after = walk(first, tmp_path, **LIMITS), walk(rest, tmp_path, **LIMITS)
    np.testing.assert_array_equal(after.indices, INDICES[8:])
    assert walk(make_job(), tmp_path, **LIMITS).seconds == before.seconds + after.seconds


def places(found):
    return np.flatnonzero(np.isin(INDICES, found.indices)).tolist()


def test_a_deadline_ends_the_work_after_a_tile(tmp_path):
    done = []
    for _ in range(4):
        found = walk(make_job(), tmp_path, **PAST)
        done.append(places(found))
        assert_whole(found, done[-1])
    assert list(map(len, done)) == [8, 16, 21, 21]
    # The first ones may be all of a kind.
    assert done[0] != list(range(8))


def test_a_deadline_that_has_not_come_ends_nothing(tmp_path):
    later = LIMITS | {"deadline": time.perf_counter() + 1000}
    assert_whole(walk(make_job(), **later))


def test_a_deadline_before_a_gap_is_filled(tmp_path):
    """What is done is then not the first so many, and numbers stay with their examples."""
    walk(make_job(preferred=2), tmp_path, **LIMITS)
    (tmp_path / f"{INDICES[0]:08d}.npz").unlink()
    found = walk(make_job(preferred=1), tmp_path, **PAST)
    assert len(places(found)) == 8 + 5
    assert places(found)[-5:] == list(range(16, 21))
    assert_whole(found, places(found))


def multiply_out(context, key, x):
    return {"largest": jnp.max(jnp.cumsum(jnp.outer(x, x)))}


def tile_size(folder, memory):
    xs = np.ones((300, 32), np.float32)
    job = make_job(function=multiply_out, xs=xs, indices=np.arange(300), preferred=32)
    walk(job, folder, **LIMITS | {"memory": memory})
    return len(read_tiles(folder)[0].indices)


def test_tiles_keep_to_the_memory_budget(tmp_path):
    """An example takes 4,096 bytes and more; tiles are those of eight devices."""
    sizes = [tile_size(tmp_path / f"{m}", m) for m in (2**30, 100_000, 40_000, 1)]
    assert sizes[0] == 8 * 32
    assert 8 * 5 <= sizes[1] <= 8 * 25
    assert 8 <= sizes[2] < sizes[1]
    assert sizes[3] == 8


def chain(key):
    return {"draw": jax.random.uniform(key)}


def test_chains_draw_by_their_number(monkeypatch):
    whole = map_chains(chain, KEY, 10)
    wanted = [jax.random.uniform(jax.random.fold_in(KEY, i)) for i in range(10)]
    np.testing.assert_array_equal(whole["draw"], wanted)
    monkeypatch.setattr(work, "MAX_CHAINS", 4)
    for number in (4, 10):
        found = map_chains(chain, KEY, number)
        np.testing.assert_array_equal(found["draw"], wanted[:number])


@pytest.mark.parametrize(
    ("num_chains", "gradients", "wanted"),
    [
        (16, 2_000, 62),
        (16, 10, 64),
        (1, 10, 1024),
        (1, 2_000_000, 128),
        (16, 100_001, 8),
        (100, 100_001, 1),
        (1024, 10, 1),
        (5000, 10, 1),
        (4, 0, 256),
    ],
)
def test_a_tile_is_worth_its_time_and_no_more(num_chains, gradients, wanted):
    assert preferred_examples(num_chains, gradients) == wanted


def test_work_is_shown_only_if_asked_for_and_needed(capsys, tmp_path):
    shown = LIMITS | {"show_progress": True}
    walk(make_job(), tmp_path, **LIMITS)
    walk(make_job(), tmp_path, **shown)
    assert capsys.readouterr() == ("", "")
    (tmp_path / f"{INDICES[16]:08d}.npz").unlink()
    walk(make_job(), tmp_path, **shown)
    assert capsys.readouterr() == ("", "some work  21/21\n")
