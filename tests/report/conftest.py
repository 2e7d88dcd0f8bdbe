"""Runs to write pages about."""

import pytest

from pages import elements, log_p, make_run, page, records


@pytest.fixture(scope="module")
def home(tmp_path_factory, quick_compilation):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first(home):
    return make_run(home / "first", evaluations=[log_p()], metrics=records(), shape=(6, 4))


@pytest.fixture(scope="module")
def second(home):
    return make_run(home / "second", evaluations=[log_p(2.0, noise=0.125)], metrics=records())


@pytest.fixture(scope="module")
def both(first, second):
    """The page of the two."""
    return elements(page(first, second))
