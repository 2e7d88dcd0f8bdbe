"""The folder of a run, and going on with it."""

import logging
import signal
import threading

import jax
import numpy as np
import pytest

from aisle.errors import InputError
from aisle.learning import batches, checkpoints, loop, trainer
from aisle.learning.run_directory import read_config, read_metrics
from aisle.learning.trainer import fit
from fitting import DATA, QUICK, START, assert_identical, encoder

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A run of four epochs at once, in a folder, with the number of its compilations."""
    out = tmp_path_factory.mktemp("runs") / "new" / "run"
    fitted = fit(START, encoder(), DATA, out=out, **QUICK | {"num_epochs": 4})
    return out, fitted


def test_a_run_leaves_its_settings_metrics_and_last_state(whole_run):
    out, fitted = whole_run
    settings = read_config(out)
    assert settings["fit"]["learning_rate"] == 0.01
    assert settings["fit"]["num_epochs"] == 4
    assert set(settings) == {"fit", "data", "provenance"}
    records = read_metrics(out)
    assert [record["update"] for record in records] == list(range(1, 4 * 29 + 1))
    np.testing.assert_allclose(
        [record["bound"] for record in records], [r["bound"] for r in fitted.history], rtol=1e-6
    )
    assert checkpoints.latest(out) == 4 * 29 == int(fitted.state.update)
    found = checkpoints.restore(out, fitted.state, report=pytest.fail)
    assert_identical(found[1], fitted.state)
    assert fitted.signal_number is None


def test_a_folder_with_a_run_is_refused_and_left_alone(whole_run):
    out, _ = whole_run
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    with pytest.raises(InputError, match="exists: resume it") as caught:
        fit(START, encoder(), DATA, out=out, **QUICK)
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


def test_a_resumed_run_goes_on_bit_for_bit(whole_run, tmp_path, caplog):
    """Its first half ran in a thread; its chunk is compiled once, whatever the lengths."""
    out, whole = whole_run
    first = in_a_thread(lambda: fit(START, encoder(), DATA, out=tmp_path, **QUICK))
    assert int(first.state.update) == 2 * 29
    config = (tmp_path / "config.json").read_bytes()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        options = QUICK | {"num_epochs": 4}
        resumed = fit(START, encoder(), DATA, out=tmp_path, resume=True, **options)
    assert_identical(resumed.state, whole.state)
    assert_identical(resumed.model, whole.model)
    assert [record["update"] for record in resumed.history] == list(range(59, 117))
    assert (tmp_path / "config.json").read_bytes() == config
    assert without_seconds(read_metrics(tmp_path)) == without_seconds(read_metrics(out))
    compiled = [m for m in caplog.messages if "Finished XLA compilation of jit(chunk)" in m]
    assert len(compiled) == 1


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 8])
def test_a_run_of_two_devices_goes_on_with_another_number(tmp_path, monkeypatch, num_devices):
    def use(number):
        mesh = jax.sharding.Mesh(jax.devices()[:number], ("batch",))
        monkeypatch.setattr(trainer, "batch_mesh", lambda batch_size: mesh)

    options = QUICK | {"method": "ais", "batch_size": 64}
    use(2)
    fit(START, encoder(), DATA, out=tmp_path, **options)
    whole = fit(START, encoder(), DATA, **options | {"num_epochs": 4})
    use(num_devices)
    resumed = fit(START, encoder(), DATA, out=tmp_path, resume=True, **options | {"num_epochs": 4})
    assert len(resumed.state.step_sizes.sharding.device_set) == num_devices
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        resumed.state,
        whole.state,
    )


def test_a_run_is_resumed_at_the_end_of_its_warm_up_and_after_it(tmp_path):
    options = QUICK | {"warmup_epochs": 2}
    whole = fit(START, encoder(), DATA, **options | {"num_epochs": 4})
    for number in (2, 3):
        out = tmp_path / str(number)
        fit(START, encoder(), DATA, out=out, **options | {"num_epochs": number})
        again = fit(START, encoder(), DATA, out=out, resume=True, **options | {"num_epochs": 4})
        assert_identical(again.state, whole.state)


def test_a_finished_run_has_nothing_to_resume(whole_run):
    out, whole = whole_run
    again = fit(START, encoder(), DATA, out=out, resume=True, **QUICK | {"num_epochs": 4})
    assert_identical(again.state, whole.state)
    assert again.history == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.02}, "learning_rate is 0.02 but was 0.01 in "),
        ({"seed": 1}, "seed is 1 but was 0 in "),
        ({"data": DATA[::-1]}, "the data are not those of "),
        ({"data": DATA[:-1]}, "the data are not those of "),
    ],
)
def test_a_run_is_resumed_with_what_it_was_started_with(whole_run, changes, words):
    out, _ = whole_run
    options = {"data": DATA, **QUICK, "num_epochs": 4} | changes
    with pytest.raises(InputError, match=words):
        fit(START, encoder(), out=out, resume=True, **options)


def test_numbers_of_numpy_are_compared_too(as_users_have_it, tmp_path):
    options = QUICK | {"num_epochs": 1, "seed": np.int64(1)}
    fit(START, encoder(), DATA, out=tmp_path, **options)
    with pytest.raises(InputError, match="seed is 2 but was 1 in "):
        fit(START, encoder(), DATA, out=tmp_path, resume=True, **options | {"seed": 2})


def test_only_a_run_can_be_resumed(tmp_path):
    with pytest.raises(InputError, match="resume is True but out is None: give the folder"):
        fit(START, encoder(), DATA, resume=True, **QUICK)
    with pytest.raises(InputError, match="none does not exist: give the folder of a run"):
        fit(START, encoder(), DATA, out=tmp_path / "none", resume=True, **QUICK)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("keeps", [False, True])
def test_a_program_is_told_that_its_training_was_cut_short(capsys, monkeypatch, tmp_path, keeps):
    def interrupt(self, state):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.Loop, "_check_skipped", interrupt)
    fitted = fit(START, encoder(), DATA, out=tmp_path if keeps else None, **QUICK)
    assert fitted.signal_number == signal.SIGINT
    said = capsys.readouterr().err
    assert f"stopped by a signal at update {int(fitted.state.update)} of 58, and" in said
    assert ("the same call with resume=True goes on" in said) == keeps


def test_what_is_read_ahead_is_what_comes_next(monkeypatch):
    asked, real = [], batches.Feeder.batches

    def recorded(self, chunk, following, capacity):
        asked.append((chunk, following))
        return real(self, chunk, following, capacity)

    monkeypatch.setattr(batches.Feeder, "batches", recorded)
    fit(START, encoder(), DATA, **QUICK | {"num_epochs": 4, "warmup_epochs": 1})
    assert len({chunk.num_updates for chunk, _ in asked}) > 1
    # Another method may be slower: its chunks grow from 1 again.
    assert [chunk.num_updates for chunk, _ in asked if chunk.first_update in (0, 29)] == [1, 1]
    announced = [following for _, following in asked]
    # At the end of each phase there is nothing to announce.
    assert announced.count(None) == 2
    for following, (chunk, _) in zip(announced, asked[1:], strict=False):
        assert following in (None, chunk)


def test_another_seed_gives_other_weights(whole_run):
    _, whole = whole_run
    other = fit(START, encoder(), DATA, seed=1, **QUICK | {"num_epochs": 4})
    assert np.all(np.asarray(other.model.weight) != np.asarray(whole.model.weight))
