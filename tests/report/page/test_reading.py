"""Reading the folders of runs."""

from pathlib import Path

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.evaluation.results import save
from aisle.report.page.reading import read_evaluation, read_folder
from aisle.report.page.subjects import short_names
from aisle.statistics import Mean
from pages import make_run, result


def test_names_are_short_where_they_can_be(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    paths = [Path("a/x"), Path("b/y"), Path(), Path("b/x")]
    assert short_names(paths) == ["a/x", "y", "here", "b/x"]


def test_an_evaluation_is_read_as_it_was_saved(tmp_path):
    wanted = result(importance=True)
    save(wanted, tmp_path / "a")
    found = read_evaluation(tmp_path / "a").found
    for name, value in wanted._asdict().items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(found, name), value)
        else:
            assert getattr(found, name) == value


def test_figures_that_were_not_finite_are_not_numbers(tmp_path):
    rounds = [result().rounds[0]._replace(estimate=Mean(-np.inf, np.nan, 20), bdmc=None)]
    save(result(rounds=rounds), tmp_path / "a")
    estimate = read_evaluation(tmp_path / "a").found.estimate
    assert np.isnan(estimate.mean) and np.isnan(estimate.standard_error)


DAMAGES = {
    "no JSON": ("result.json", b"{"),
    "another object": ("result.json", b"[1]"),
    "another version": ("result.json", b'{"log_likelihood": 1}'),
    "no arrays": ("examples.npz", b"PK"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_evaluation_is_told_in_one_line(tmp_path, name, content):
    save(result(), tmp_path / "a")
    (tmp_path / "a" / name).write_bytes(content)
    with pytest.raises(InputError, match="evaluate again, or remove it") as caught:
        read_evaluation(tmp_path / "a")
    assert "\n" not in str(caught.value)


def test_a_history_ends_where_the_weights_do(tmp_path):
    make_run(tmp_path / "run")
    history = read_folder(tmp_path / "run", 25).history
    assert history.bound.updates.tolist() == list(range(1, 26))
    assert (history.decoder_gradients, history.seconds) == (2500, 12.5)
    assert history.held_out.values.tolist() == [-28, -27]
    assert history.last_held_out == Mean(-27.0, 0.25, 100)
