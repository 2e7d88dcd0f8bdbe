"""Read the folders of runs."""

import json

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.report.reading import read_run
from aisle.statistics import Mean
from pages import ABOUT, NUM_EXAMPLES, NUM_UPDATES, config, log_p, make_run, mean, records


def test_a_history_is_arrays(tmp_path):
    run = make_run(tmp_path / "run", metrics=records())
    assert run.update == NUM_UPDATES
    assert run.history["bound"].tolist() == [-30 + i / 10 for i in range(1, NUM_UPDATES + 1)]
    assert run.held_out["update"].tolist() == [10, 20, 30, 40]
    assert run.last_held_out == Mean(-25.0, 0.25, 100)


def test_null_is_not_a_number(tmp_path):
    run = make_run(tmp_path / "run", metrics=records(bad_from=31))
    assert np.isnan(run.history["bound"]).nonzero()[0].tolist() == list(range(30, 40))
    assert np.isnan(run.last_held_out.mean)


def test_a_run_without_metrics_is_empty(tmp_path):
    path = make_run(tmp_path / "run", metrics=records()).path
    assert read_run(path).update == NUM_UPDATES
    (path / "metrics.jsonl").unlink()
    run = read_run(path)
    assert (run.update, run.last_held_out, len(run.history["bound"])) == (0, None, 0)


def test_an_evaluation_has_the_numbers_of_its_files(tmp_path):
    importance = {"num_samples": 5, "bound": mean(-22.25, 1.5), "elbo": mean(-27.75, 1.25)}
    evaluation = (log_p(), {"importance": importance})
    (found,) = make_run(tmp_path / "run", evaluations=[evaluation]).evaluations
    np.testing.assert_array_equal(found.log_p, log_p())
    assert found.means["log_p"].mean == pytest.approx(-20)
    assert found.means["gap"] == Mean(0.125, 0.03125, 7)
    assert found.means["bound"] == Mean(-22.25, 1.5, NUM_EXAMPLES)
    assert found.means["elbo"] == Mean(-27.75, 1.25, NUM_EXAMPLES)
    assert (found.chains, found.split, found.update) == ((2, 4, 3), "test", NUM_UPDATES)


@pytest.mark.parametrize(("data", "other"), [(None, None), ("things", None), ("x.npy", "x.npy")])
def test_other_data_are_known(tmp_path, data, other):
    evaluation = (log_p(), {"about": ABOUT | {"data": data}})
    (found,) = make_run(tmp_path / "run", evaluations=[evaluation]).evaluations
    assert found.other_data == other


def test_data_are_identified_by_their_digest_or_else_by_their_name(tmp_path):
    own = {"fit": {"method": "ais"}, "data": {"digest": "d1"}}
    nameless = {"fit": {}, "data": {"name": "things"}}
    settings = [config(), config(data="copy"), config(digest="d2"), own, nameless]
    runs = [make_run(tmp_path / str(i), one) for i, one in enumerate(settings)]
    assert [run.data_key for run in runs] == ["d1", "d1", "d2", "d1", "things"]


def test_settings_have_dotted_names(tmp_path):
    settings = make_run(tmp_path / "run", config(fit=None)).settings
    assert settings["method.method"] == "ais"
    assert settings["data.shape"] == "[6, 4]"
    assert settings["provenance.packages.jax"] == "1.2.3"
    own = {"fit": {"method": "ais", "held_out": None}}
    assert make_run(tmp_path / "own", own).settings == {"method": "ais", "held_out": "not set"}


DAMAGES = {
    "no JSON": ("result.json", b"{"),
    "another object": ("result.json", b"[1]"),
    "another version": ("result.json", json.dumps({"log_likelihood": 1}).encode()),
    "no arrays": ("examples.npz", b"PK"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_evaluation_is_reported_in_one_line(tmp_path, name, content):
    run = make_run(tmp_path / "run", evaluations=[log_p()])
    (run.path / "evaluations" / "0" / name).write_bytes(content)
    with pytest.raises(InputError, match="evaluate again, or remove it") as caught:
        read_run(run.path)
    assert "\n" not in str(caught.value)
