"""Runs to write pages about."""

import pytest

from pages import config, elements, make_run, page, result


@pytest.fixture(scope="module")
def home(tmp_path_factory, quick_compilation):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first(home):
    return make_run(home / "first", evaluations=[result(importance=True)])


@pytest.fixture(scope="module")
def second(home):
    return make_run(home / "second", evaluations=[result(2.0, seed=1)])


@pytest.fixture(scope="module")
def bare(home):
    """A run without chains, without metrics and without evaluations, of vectors."""
    return make_run(home / "bare", config("vae", num_samples=1), metrics=[], shape=(24,))


@pytest.fixture(scope="module")
def one(first):
    """The page of one run that has everything."""
    return elements(page(first))


@pytest.fixture(scope="module")
def both(first, second):
    """The page of two such runs."""
    return elements(page(first, second))
