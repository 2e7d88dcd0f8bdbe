"""Each application from its data to its record, in small, and again from its cells."""

import importlib
import json

import pytest

from applications.core import models

NAMES = ("counts", "imputation", "density", "neurons", "outliers", "pictures", "proteins")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation", "as_users_have_it")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_application_in_small(name, tmp_path, monkeypatch, capsys):
    application = importlib.import_module(f"applications.{name}.__main__")
    if name == "counts":
        monkeypatch.setattr(application, "FAMILIES", {"Poisson": application.aisle.Poisson})
    arguments = ["--budget", "smoke", "--out", str(tmp_path)]
    assert application.COMMAND(arguments) == 0
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert record["rows"] and record["answer"]
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    capsys.readouterr()
    # Nothing is trained or evaluated again.
    monkeypatch.setattr(models.aisle, "fit", None)
    monkeypatch.setattr(models.aisle, "log_likelihood", None)
    assert application.COMMAND(arguments) == 0 and capsys.readouterr().err == ""
    assert json.loads((tmp_path / f"{name}.json").read_text()) == record
