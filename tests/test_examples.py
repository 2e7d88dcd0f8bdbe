"""What the README, the documentation and the examples show is run here, as it stands.

The fast walk makes every step of the first one, with small numbers; the slow one, and the
examples, take the numbers that are shown.
"""

import dataclasses
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tyro

import aisle
from aisle.cli.evaluate import Evaluate
from aisle.cli.impute import Impute
from aisle.cli.main import parse
from aisle.cli.train import Train

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

# What they show is run from top to bottom in one folder, in this order.
WALKED = [ROOT / "README.md", DOCS / "first-steps.md", DOCS / "evaluating.md"]
# Of these, commands alone: each Python block of them is a program of its own.
WALKED_COMMANDS = [DOCS / "own-model.md"]


def blocks(page):
    """Yield the programs of a page: a language, and the code."""
    yield from re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL)


def command_lines(code):
    """Yield the words of each line of a shell block, continued lines joined, without comments."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removesuffix("&").replace("$id", "0"), comments=True)
        if words:
            yield words


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
@pytest.mark.parametrize(
    ("page", "made"), [("first-steps", "report.html"), ("tables", "young.csv")]
)
def test_a_page_in_small(tmp_path, monkeypatch, page, made):
    monkeypatch.chdir(tmp_path)
    for language, code in blocks(DOCS / f"{page}.md"):
        if language == "python":
            run_python(in_small(code))
            continue
        for words in command_lines(code):
            assert words[0] == "aisle" and shrunk(parse(words[1:])).run() == 0
    assert (tmp_path / made).stat().st_size > 1_000


def run_python(code):
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})


def in_small(code):
    """Return a program that does the same with as little work as can be."""
    return re.sub(r"(num_(?:updates|temperatures|chains|draws))=\d+", r"\1=2", code)


def shrunk(command):
    """Return a command that does the same with as little work as can be."""
    if isinstance(command, Train):
        command.num_updates = 2
        # One device, and Adam: both are compiled sooner.
        command.optimizer = dataclasses.replace(command.optimizer, batch_size=17, optimizer="adam")
    if isinstance(command, Impute):
        command.draws = 2
    if isinstance(command, Evaluate):
        sampler = dataclasses.replace(
            command.config.sampler,
            num_chains=2,
            num_temperatures=2,
            bdmc_examples=2,
            tolerance=None,
        )
        command.config = dataclasses.replace(command.config, num_examples=4, sampler=sampler)
    return command


@pytest.mark.slow
def test_a_walk_through_the_pages(tmp_path):
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path)
    for page in [*WALKED, *WALKED_COMMANDS]:
        for language, code in blocks(page):
            is_shown_elsewhere = language == "python" and page in WALKED_COMMANDS
            if not code.startswith("make ") and not is_shown_elsewhere:
                run_block(language, code, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 10_000


def run_block(language, code, folder):
    scripts = str(Path(sys.executable).parent)
    program = [sys.executable, "-"] if language == "python" else ["bash", "-e"]
    environment = os.environ | {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        program, input=code, cwd=folder, env=environment, text=True, capture_output=True
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


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
