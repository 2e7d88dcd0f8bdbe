"""What the pages show, taken apart and run in this process with as little work as can be."""

import dataclasses
import re
import shlex
from pathlib import Path

import aisle
from aisle.cli.evaluate import Evaluate
from aisle.cli.impute import Impute
from aisle.cli.main import parse
from aisle.cli.score import Score
from aisle.cli.select import Select
from aisle.cli.train import Train

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# What is given with two digits or more is a budget; less is part of what is shown.
BUDGETS = {"num_updates": 4, "num_temperatures": 3, "num_chains": 3, "num_draws": 3}
ESTIMATOR_UPDATES = 64


def blocks(page):
    """Yield the programs of a page: a language, and the code."""
    yield from re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL)


def command_lines(code):
    """Yield the words of each line of a shell block, continued lines joined, without comments."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removesuffix("&").replace("$id", "0"), comments=True)
        if words:
            yield words


def in_small(code):
    """Return a program that does the same with small budgets."""
    for name, value in BUDGETS.items():
        code = re.sub(rf"\b{name}=\d\d+", f"{name}={value}", code)
    return re.sub(r"\bmax_updates=\d+", f"max_updates={ESTIMATOR_UPDATES}", code)


def run_python(code, monkeypatch):
    """Run a program in small, as the main one."""
    defaults = aisle.LatentDensity.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "max_updates", ESTIMATOR_UPDATES)
    exec(compile(in_small(code), "block", "exec"), {"__name__": "__main__"})


def run_words(words, monkeypatch):
    """Run a command in small; make is for others, and examples are files in this folder."""
    if words[0] == "make":
        return
    if words[0] == "python":
        run_python(Path(words[1]).read_text(), monkeypatch)
    else:
        assert words[0] == "aisle"
        assert shrunk(parse(words[1:])).run() == 0


def shrunk(command):
    """Return a command that does the same with as little work as can be."""
    if isinstance(command, Train) and command.resume is None:
        command.num_updates = 2
        # One device, and Adam: both are compiled sooner.
        command.optimizer = dataclasses.replace(command.optimizer, batch_size=17, optimizer="adam")
    elif isinstance(command, Train):
        command.num_updates = command.num_updates and 4
    if isinstance(command, Select):
        command.num_latents, command.num_updates = "1,2", 2
        command.eval_chains, command.eval_temperatures, command.eval_bdmc = 2, 2, 2
    if isinstance(command, Score):
        command.num_chains, command.num_temperatures = 2, 2
    if isinstance(command, Impute):
        command.draws = 2
    if isinstance(command, Evaluate):
        given = command.config.sampler
        sampler = dataclasses.replace(
            given,
            num_chains=2,
            num_temperatures=3,
            bdmc_examples=2,
            tolerance=None,
            refit=given.refit and 2,
            importance_samples=given.importance_samples and 2,
        )
        short = command.config.whole_split and 2
        command.config = dataclasses.replace(
            command.config, num_examples=4, whole_split=short, sampler=sampler
        )
    return command
