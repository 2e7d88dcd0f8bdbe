"""Runs of `aisle.fit` on disk, with models of one's own: opened, resumed, exported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import aisle
from aisle.errors import InputError
from aisle.learning import Adam, DReG, Validation
from aisle.runs import checkpoints
from aisle.runs.folder import read_config, read_metrics
from aisle.runs.opening import export_run
from fitting import DATA, START, assert_identical, encoder

pytestmark = pytest.mark.usefixtures("quick_compilation")

X = DATA[:33].astype(np.float32)
# Three updates in an epoch; a batch that one device takes.
QUICK = {"optimizer": optax.adam(0.5), "batch_size": 11, "show_progress": False}
METHOD = DReG(2)


def fit(**options):
    return aisle.fit(START, encoder(), X, **{"method": METHOD, **QUICK, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_compilation):
    """A folder, and what `fit` returned."""
    path = tmp_path_factory.mktemp("fitted") / "run"
    return path, fit(num_updates=6, out=path)


def test_a_run_is_opened_with_the_model_that_was_given(run):
    path, fitted = run
    opened = aisle.open_run(path, START, encoder())
    assert_identical((opened.model, opened.proposal), (fitted.model, fitted.proposal))
    assert (opened.update, opened.num_planned, opened.config) == (6, 6, None)
    assert not eqx.tree_equal(opened.model, START)
    assert [record["update"] for record in read_metrics(path)] == list(range(1, 7))
    stored = read_config(path)
    assert (stored["format"], stored["ends"]) == (2, [6])
    with pytest.raises(InputError, match=r"open it by aisle\.open_run\(path, model, proposal\)"):
        aisle.open_run(path)
    for open_it in (aisle.open_run, aisle.load):
        with pytest.raises(InputError, match="give both a model and a proposal, or neither"):
            open_it(path, proposal=encoder())
    with pytest.raises(InputError, match="is of another model or optimiser"):
        aisle.open_run(path, START, encoder(4))


def test_a_run_is_resumed_and_extended_bit_for_bit(run, tmp_path):
    first = fit(num_updates=4, out=tmp_path / "run")
    assert int(first.state.update) == 4
    with pytest.raises(InputError, match="holds a run already: resume it"):
        fit(num_updates=6, out=tmp_path / "run")
    second = fit(num_updates=6, out=tmp_path / "run", resume=True)
    assert [record["update"] for record in second.history] == [5, 6]
    assert_identical((second.model, second.state), (run[1].model, run[1].state))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "seed is 1 but was 0"),
        ({"batch_size": 10}, "batch_size is 10 but was 11"),
        ({"method": DReG(3)}, r"phases is .*num_samples=3"),
        ({"optimizer": Adam()}, r"phases is .*aisle\.Adam"),
        ({"held_out": X}, "keep is 'best' but was None"),
        ({"num_updates": 5}, "a run can be extended, not cut"),
    ],
    ids=lambda a: "-".join(a) if isinstance(a, dict) else "",
)
def test_a_run_is_resumed_with_its_own_settings_only(run, changes, words):
    options = {"num_updates": 6, **changes}
    with pytest.raises(InputError, match=words):
        fit(out=run[0], resume=True, **options)


def test_other_data_or_another_kind_of_run_are_not_resumed(run, tmp_path):
    with pytest.raises(InputError, match=f"the data are not those of {run[0]}"):
        aisle.fit(START, encoder(), X + 1, method=METHOD, out=run[0], resume=True, **QUICK)
    with pytest.raises(InputError, match="resume is True but out is None"):
        fit(resume=True)
    with pytest.raises(InputError, match="does not exist: give the folder of a run"):
        fit(out=tmp_path / "none", resume=True)


def test_weights_are_exported_and_loaded(run, tmp_path):
    path, fitted = run
    export_run(aisle.open_run(path, START, encoder()), tmp_path / "w.safetensors")
    found = aisle.load(tmp_path / "w.safetensors", START, encoder())
    assert_identical(found, (fitted.model, fitted.proposal))
    with pytest.raises(InputError, match=r"aisle\.load\(path, model, proposal\)"):
        aisle.load(tmp_path / "w.safetensors")


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_weights_that_are_kept(tmp_path, keep):
    """With a rate so large that the best bound is not the last one."""
    looks = []
    fitted = fit(
        num_epochs=30,
        held_out=Validation(DATA[40:80].astype(np.float32), every=3, keep=keep),
        callbacks=[lambda look, state: looks.append(look)],
        out=tmp_path / "run",
    )
    looks = [look for look in looks if look.held_out is not None]
    bounds = [look.held_out.mean for look in looks]
    assert len(looks) == 10
    best = int(np.nanargmax(bounds))
    assert best != len(looks) - 1
    kept = looks[best if keep == "best" else -1]
    assert_identical((fitted.model, fitted.proposal), (kept.model, kept.proposal))
    opened = aisle.open_run(tmp_path / "run", START, encoder())
    assert_identical((opened.model, opened.proposal), (kept.model, kept.proposal))
    records = [r for r in read_metrics(tmp_path / "run") if "held_out_bound" in r]
    np.testing.assert_allclose([r["held_out_bound"] for r in records], bounds, rtol=1e-6)


def test_a_run_is_opened_at_an_earlier_checkpoint(tmp_path):
    """A run that is resumed once has two checkpoints; the looks say what is in them."""
    path, looks = tmp_path / "run", []
    with_looks = {"callbacks": [lambda look, state: looks.append(look)], "out": path}
    fit(num_updates=3, **with_looks)
    fit(num_updates=6, resume=True, **with_looks)
    for update in (3, 6):
        opened = aisle.open_run(path, START, encoder(), update=update)
        assert opened.update == update
        kept = next(look for look in looks if look.update == update)
        assert_identical((opened.model, opened.proposal), (kept.model, kept.proposal))
    with pytest.raises(InputError, match=r"update is 4, of which .* has no checkpoint"):
        aisle.open_run(path, START, encoder(), update=4)


class Count(eqx.Module):
    """A model of counts, whose type must reach it."""

    log_rate: jax.Array

    def log_prior(self, z):
        return -0.5 * jax.numpy.sum(z**2)

    def log_likelihood(self, x, z):
        assert x.dtype == np.uint8
        return jax.numpy.sum(x * (self.log_rate + z) - jax.numpy.exp(self.log_rate + z))

    def sample_prior(self, key):
        return jax.random.normal(key, (1,))

    def sample_observation(self, key, z):
        return jax.random.poisson(key, jax.numpy.exp(self.log_rate + z)).astype(np.uint8)


def test_whole_numbers_reach_a_model_as_they_are(monkeypatch):
    x, seen = np.full((20, 3), 7, np.uint8), []

    def run(loop, params, *, resume):
        seen.append(loop.feeder._split.observe(np.arange(20)))
        raise KeyboardInterrupt

    monkeypatch.setattr("aisle.learning.loop.Loop.run", run)
    with pytest.raises(KeyboardInterrupt):
        aisle.fit(Count(jax.numpy.zeros(3)), encoder(), x, method=aisle.VAE(), **QUICK)
    assert seen[0].dtype == np.uint8
    np.testing.assert_array_equal(seen[0], x)


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.array([[1, "a"], [2, "b"]], object), "values of type object, such as 1: give numbers"),
        (X.tolist(), r"are a list of numbers or other objects: give an array, as by np\.asarray"),
        (
            (X, np.zeros(33)),
            r"an example has the shape \(\(3,\), \(\)\) but .* \(3,\): give examples",
        ),
        (X[0], r"the shape \(3,\): give examples along the first axis"),
    ],
    ids=["objects", "list", "tuple", "one example"],
)
def test_data_that_cannot_be_trained_on_are_named(tmp_path, x, words):
    with pytest.raises(InputError, match=words) as caught:
        aisle.fit(START, encoder(), x, method=METHOD, **QUICK, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("as_users_have_it")
def test_a_rate_that_is_a_text_is_named():
    with pytest.raises(InputError, match="learning_rate is '1e-3': it must be a number"):
        aisle.Adam(learning_rate="1e-3")
    with pytest.raises(InputError, match=r"optimizer is 'adam': give an Optax transformation"):
        fit(optimizer="adam", num_updates=1)


@pytest.mark.parametrize("out", ["file", "file/run"])
def test_a_file_in_the_way(tmp_path, out):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=f"cannot write {tmp_path / out}"):
        fit(num_updates=1, out=tmp_path / out)
    assert (tmp_path / "file").read_text() == "mine"


PROGRAM = """
import sys
import aisle, optax
from fitting import DATA, START, encoder
aisle.fit(START, encoder(), DATA[:33].astype("float32"), method=aisle.DReG(2), batch_size=11,
          optimizer=optax.adam(0.5), num_updates=10**6, out=sys.argv[1], show_progress=False)
print("went on")
"""


@pytest.mark.slow
def test_a_program_that_is_asked_to_end_ends_and_can_be_resumed(tmp_path, quick_compilation):
    path, tests = tmp_path / "run", Path(__file__).parents[1]
    values = quick_compilation | {"jax_num_cpu_devices": jax.device_count()}
    environment = os.environ | {name.upper(): str(value) for name, value in values.items()}
    environment["PYTHONPATH"] = os.pathsep.join([str(tests), *filter(None, sys.path)])
    command = [sys.executable, "-c", PROGRAM, str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            file, limit = path / "metrics.jsonl", time.monotonic() + 180
            while process.poll() is None and not (file.exists() and file.stat().st_size):
                assert time.monotonic() < limit, "no update in three minutes"
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=180)
        finally:
            process.kill()
    assert (process.returncode, out) == (143, ""), err
    [update] = checkpoints.updates(path)
    assert err.splitlines() == [
        f"aisle: SIGTERM ended training at update {update:,} of 1,000,000",
        f"aisle: {path} is resumed by aisle.fit(..., resume=True)",
    ]
    fitted = fit(num_updates=10**6, callbacks=[lambda *_: True], out=path, resume=True)
    assert fitted.history[0]["update"] == update + 1
