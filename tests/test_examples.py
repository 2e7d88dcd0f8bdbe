"""What the README, the documentation and the examples show is run here.

Pages are run with small budgets, the examples with those that they show.
"""

import re
import runpy
import shutil

import numpy as np
import pytest
import tyro

import aisle
from aisle.cli.main import parse
from walking import DOCS, ROOT, blocks, command_lines, run_python, run_words

PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

# What these show is run from top to bottom in one folder, as it uses what was made before.
WALKS = {
    "first steps": [ROOT / "README.md", DOCS / "first-steps.md", DOCS / "evaluating.md"],
    "own model": [DOCS / "own-model.md"],
    "tables": [DOCS / "tables.md"],
}
MADE = {"first steps": "report.html", "own model": "levels.png", "tables": "patients.html"}
WALKED = {page for pages in WALKS.values() for page in pages}


def python_blocks():
    for page in PAGES:
        for i, (language, code) in enumerate(blocks(page)):
            if language == "python" and page not in WALKED:
                yield pytest.param(code, id=f"{page.name}-{i}")


def commands(*start):
    """Yield the arguments of every shown command that starts so."""
    for page in PAGES:
        for language, code in blocks(page):
            for words in command_lines(code) if language == "sh" else ():
                for i in range(len(words)):
                    if words[i : i + len(start)] == list(start):
                        yield pytest.param(words[i + len(start) :], id=f"{page.name}-{words}")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation", "as_users_have_it")
@pytest.mark.parametrize("code", list(python_blocks()))
def test_every_python_block_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for extra in re.findall(r"^(?:import|from) (torch|flax)\b", code, re.MULTILINE):
        pytest.importorskip(extra, reason=f"{extra} is not installed: make test-doors has it")
    run_python(code)


@pytest.mark.parametrize("words", list(commands("aisle")))
def test_every_command_is_understood(words):
    parse(words)


@pytest.mark.parametrize("words", list(commands("python", "-m", "paper")))
def test_every_command_of_the_studies_is_understood(words):
    from paper.options import COMMANDS

    tyro.cli(COMMANDS[words[0]], args=words[1:])


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation", "as_users_have_it")
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_through_pages(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path)
    for page in WALKS[name]:
        for language, code in blocks(page):
            if language == "python":
                run_python(code)
                continue
            for words in command_lines(code):
                run_words(words)
    assert (tmp_path / MADE[name]).stat().st_size > 1_000


def run_example(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    return runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


@pytest.mark.slow
def test_categories_are_modelled_better_than_by_their_frequencies(tmp_path, monkeypatch):
    found = run_example("categories.py", tmp_path, monkeypatch)
    train, test = found["train"], found["test"]
    is_level = train[:, :, None] == np.arange(found["NUM_LEVELS"])
    log_shares = np.log(is_level.mean(axis=0) + 1e-3)
    by_frequencies = log_shares[np.arange(train.shape[1]), test].sum(axis=1).mean()
    assert found["result"].mean > by_frequencies + 5
    assert found["result"].gap.mean < 1


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
def test_counts_are_fitted_as_well_as_by_the_model_that_made_them(tmp_path, monkeypatch):
    found = run_example("counts.py", tmp_path, monkeypatch)
    assert abs(found["found"].gap.mean) < 0.1
    assert abs(found["differences"].mean()) < 0.2


@pytest.mark.slow
def test_a_decoder_from_elsewhere(tmp_path, monkeypatch):
    found = run_example("evaluate_elsewhere.py", tmp_path, monkeypatch)
    errors = found["result"].log_p - found["exact"]
    assert -1.0 < errors.mean() < 0
    assert abs(errors.mean() + found["result"].gap.mean) < 0.2


@pytest.mark.slow
def test_a_vae_of_pytorch_is_evaluated_and_trained_on(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed: make test-doors has it")
    found = run_example("pytorch_vae.py", tmp_path, monkeypatch)
    before = found["before"]
    missed = before.importance.ais_difference
    # Both are lower bounds, the one by annealing is certified, and so it is not the lower one.
    assert missed.mean > -4 * missed.standard_error
    assert before.importance.elbo.mean < before.importance.bound.mean
    assert before.gap.mean + 4 * before.gap.standard_error < 0.25
    assert found["gain"].mean() > 4 * found["error"]


def test_every_example_is_tested():
    tested = {"categories.py", "counts.py", "evaluate_elsewhere.py", "pytorch_vae.py"}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == tested


def test_the_reference_has_every_public_name():
    shown = re.findall(r"^::: aisle\.\S*?(\w+)$", (DOCS / "reference.md").read_text(), re.MULTILINE)
    assert set(aisle.__all__) - set(shown) == {"data"}
