"""The folder of a run, and resuming it."""

import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aisle
from aisle.annealing import HMC, Kernel
from aisle.errors import InputError
from aisle.learning import (
    AIS,
    VAE,
    Adam,
    EarlyStopping,
    Phase,
    Recipe,
    Validation,
    batches,
    preparing,
    rates,
)
from aisle.runs import checkpoints
from aisle.runs.folder import read_config, read_metrics
from fitting import DATA, QUICK, START, assert_identical, encoder

pytestmark = pytest.mark.usefixtures("quick_compilation")

fit = aisle.fit

ANNEALING = AIS(1, 2, Kernel.paper(transition=HMC(1)))


def worse(rate, num_updates, updates_per_epoch):
    """A rate that makes the last phase worse from its second epoch on."""
    del num_updates
    return lambda count: jnp.where(count > updates_per_epoch, -2 * rate, rate)


# Two phases of two epochs, the second with step sizes, and averaged weights. The best bound of the
# second phase is that after its first epoch.
RECIPE = Recipe([Phase(VAE(), Adam(0.01, rates.cosine)), Phase(ANNEALING, Adam(0.01, worse))], 0.5)
PHASES = {
    "method": RECIPE,
    "batch_size": 11,
    "num_epochs": 4,
    "held_out": Validation(DATA[:8], every=1),
    "show_progress": False,
}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A run of four epochs at once, in a folder."""
    out = tmp_path_factory.mktemp("runs") / "new" / "run"
    return out, fit(START, encoder(), DATA, out=out, **PHASES)


def test_a_run_leaves_its_settings_metrics_and_last_state(whole_run):
    out, fitted = whole_run
    settings = read_config(out)
    assert settings["fit"]["average"] == 0.5
    assert settings["fit"]["phases"][0]["method"] == "aisle.VAE(num_samples=1)"
    assert settings["ends"] == [58, 116]
    records = read_metrics(out)
    updates = [record["update"] for record in records if "bound" in record]
    assert updates == list(range(1, 4 * 29 + 1))
    bounds = [[r["bound"] for r in found if "bound" in r] for found in (records, fitted.history)]
    np.testing.assert_allclose(*bounds, rtol=1e-6)
    assert checkpoints.latest(out) == 4 * 29 == int(fitted.state.update)
    assert not fitted.is_interrupted


def test_the_best_weights_are_of_the_last_phase(whole_run):
    """Bounds of different phases are not compared, nor are the last weights the best ones."""
    _, fitted = whole_run
    bounds = {r["epoch"]: r["held_out_bound"] for r in fitted.history if "held_out_bound" in r}
    assert list(bounds) == [1, 2, 3, 4]
    assert bounds[3] > bounds[4]
    assert np.all(np.asarray(fitted.model.bias) != np.asarray(fitted.state.average[0].bias))


def test_a_folder_with_a_run_is_refused_and_left_alone(whole_run):
    out, _ = whole_run
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    with pytest.raises(InputError, match="holds a run already: resume it") as caught:
        fit(START, encoder(), DATA, out=out, **PHASES)
    assert "\n" not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def without_seconds(records):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def in_a_thread(function):
    """Return what a function returns in a thread, where Python allows no signal handlers."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("epoch", [1, 2, 3], ids=["first phase", "boundary", "second phase"])
def test_a_run_of_two_phases_resumes_bit_for_bit(whole_run, tmp_path, epoch):
    """Weights and their average, optimisers, step sizes, the best weights and the metrics."""
    out, whole = whole_run

    def stop(metrics, state):
        return metrics.epoch == epoch

    first = in_a_thread(
        lambda: fit(START, encoder(), DATA, out=tmp_path, callbacks=[stop], **PHASES)
    )
    assert int(first.state.update) == 29 * epoch
    resumed = fit(START, encoder(), DATA, out=tmp_path, resume=True, **PHASES)
    assert_identical(resumed.state, whole.state)
    assert resumed.state.method.shape == (2,)
    assert_identical((resumed.model, resumed.proposal), (whole.model, whole.proposal))
    assert without_seconds(read_metrics(tmp_path)) == without_seconds(read_metrics(out))


@pytest.mark.slow
def test_a_resumed_run_can_be_longer_than_planned_and_is_compiled_once(tmp_path, caplog):
    fit(START, encoder(), DATA, out=tmp_path, **QUICK)
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        longer = QUICK | {"num_epochs": 4}
        resumed = fit(START, encoder(), DATA, out=tmp_path, resume=True, **longer)
    compiled = [m for m in caplog.messages if "Finished XLA compilation of jit(chunk)" in m]
    assert len(compiled) <= 1
    assert [record["update"] for record in resumed.history] == list(range(59, 117))
    assert read_config(tmp_path)["ends"] == [116]
    assert_identical(resumed.state, fit(START, encoder(), DATA, **longer).state)
    with pytest.raises(InputError, match="58 updates are asked for but the run was planned for 1"):
        fit(START, encoder(), DATA, out=tmp_path, resume=True, **QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 8])
def test_a_run_of_two_devices_resumes_with_another_number(tmp_path, monkeypatch, num_devices):
    def use(number):
        mesh = jax.sharding.Mesh(jax.devices()[:number], ("batch",))
        monkeypatch.setattr(preparing, "batch_mesh", lambda batch_size: mesh)

    options = QUICK | {"method": ANNEALING, "batch_size": 64}
    use(2)
    fit(START, encoder(), DATA, out=tmp_path, **options)
    whole = fit(START, encoder(), DATA, **options | {"num_epochs": 4})
    use(num_devices)
    resumed = fit(START, encoder(), DATA, out=tmp_path, resume=True, **options | {"num_epochs": 4})
    assert len(resumed.state.method.sharding.device_set) == num_devices
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        resumed.state,
        whole.state,
    )


def test_a_finished_run_has_nothing_to_resume(whole_run):
    out, whole = whole_run
    again = fit(START, encoder(), DATA, out=out, resume=True, **PHASES)
    assert_identical(again.state, whole.state)
    assert_identical(again.model, whole.model)
    assert again.history == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": Recipe(RECIPE.phases, 0.6)}, "average is 0.6 but was 0.5 in "),
        ({"method": Recipe(RECIPE.phases[::-1], 0.5)}, r"phases is \[.*\] but was \["),
        ({"seed": 1}, "seed is 1 but was 0 in "),
        ({"seed": np.int64(2)}, "seed is 2 but was 0 in "),
        ({"batch_size": 12}, "batch_size is 12 but was 11 in "),
        ({"x": DATA[::-1]}, "the data are not those of "),
        ({"x": DATA[:-1]}, "the data are not those of "),
    ],
)
def test_a_run_is_resumed_with_what_it_was_started_with(
    as_users_have_it, whole_run, changes, words
):
    out, _ = whole_run
    with pytest.raises(InputError, match=words):
        fit(START, encoder(), out=out, resume=True, **{"x": DATA, **PHASES} | changes)


@pytest.mark.slow
def test_numbers_of_numpy_are_as_good_as_others(as_users_have_it, tmp_path):
    options = QUICK | {"num_epochs": np.int64(1), "seed": np.int64(1), "method": VAE(np.int64(1))}
    options["batch_size"] = np.int32(33)
    first = fit(START, encoder(), DATA, out=tmp_path, **options)
    usual = options | {"num_epochs": 1, "seed": 1, "method": VAE(1), "batch_size": 33}
    again = fit(START, encoder(), DATA, out=tmp_path, resume=True, **usual)
    assert_identical(again.state, first.state)


def test_only_a_run_can_be_resumed(tmp_path):
    with pytest.raises(InputError, match="resume is True but out is None: give the folder"):
        fit(START, encoder(), DATA, resume=True, **QUICK)
    with pytest.raises(InputError, match="none does not exist: give the folder of a run"):
        fit(START, encoder(), DATA, out=tmp_path / "none", resume=True, **QUICK)
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_what_is_read_ahead_is_what_comes_next(monkeypatch):
    asked, real = [], batches.Feeder.batches

    def recorded(self, chunk, following, capacity):
        asked.append((chunk, following))
        return real(self, chunk, following, capacity)

    monkeypatch.setattr(batches.Feeder, "batches", recorded)
    recipe = Recipe([Phase(VAE(), Adam()), Phase(VAE(2), Adam())])
    fit(START, encoder(), DATA, **PHASES | {"method": recipe, "held_out": None, "num_epochs": 2})
    assert len({chunk.num_updates for chunk, _ in asked}) > 1
    # Another method may be slower: its chunks grow from 1 again.
    assert [chunk.num_updates for chunk, _ in asked if chunk.first_update in (0, 29)] == [1, 1]
    announced = [following for _, following in asked]
    # At the end of each phase there is nothing to announce.
    assert announced.count(None) == 2
    for following, (chunk, _) in zip(announced, asked[1:], strict=False):
        assert following in (None, chunk)


@pytest.mark.slow
def test_another_seed_gives_other_weights(tmp_path):
    options = QUICK | {"num_epochs": 1}
    one, other = (fit(START, encoder(), DATA, seed=seed, **options) for seed in (0, 1))
    assert np.all(np.asarray(other.model.weight) != np.asarray(one.model.weight))


def test_a_run_that_early_stopping_ended_is_not_trained_on(tmp_path):
    options = QUICK | {"held_out": Validation(DATA[:8], every=1), "num_epochs": 9}
    options |= {"callbacks": [EarlyStopping(1)], "optimizer": optax.adam(-0.01)}
    ended = fit(START, encoder(), DATA, out=tmp_path, **options)
    assert int(ended.state.update) < 9 * 29
    again = fit(START, encoder(), DATA, out=tmp_path, resume=True, **options)
    assert not again.history
    assert_identical(again.state, ended.state)
