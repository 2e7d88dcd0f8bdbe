"""What the pages show, taken apart and run in this process with as little work as can be."""

import ast
import dataclasses
import re
import shlex
from pathlib import Path

from aisle.cli.evaluate import Evaluate
from aisle.cli.impute import Impute
from aisle.cli.main import parse
from aisle.cli.score import Score
from aisle.cli.select import Select
from aisle.cli.train import Train

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# Numbers from 10 on are budgets; smaller ones are part of what is shown.
BUDGETS = {"num_updates": 4, "num_temperatures": 3, "num_chains": 3, "num_draws": 3}
BUDGETS |= {"num_examples": 4, "max_seconds": 5, "max_updates": 64}


def blocks(page):
    """Yield the programs of a page: a language, and the code."""
    yield from re.findall(r"```(sh|python)\n(.*?)```", page.read_text(), re.DOTALL)


def command_lines(code):
    """Yield the words of each line of a shell block, continued lines joined, without comments."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removesuffix("&").replace("$id", "0"), comments=True)
        if words:
            yield words


class Shrinking(ast.NodeTransformer):
    """Gives calls small budgets, and the estimator one where none is given."""

    def visit_Call(self, node):
        self.generic_visit(node)
        for keyword in node.keywords:
            value = getattr(keyword.value, "value", None)
            if keyword.arg in BUDGETS and isinstance(value, int) and value >= 10:
                keyword.value = ast.Constant(BUDGETS[keyword.arg])
        names = {keyword.arg for keyword in node.keywords}
        if ast.unparse(node.func) == "aisle.LatentDensity" and "max_updates" not in names:
            node.keywords.append(ast.keyword("max_updates", ast.Constant(BUDGETS["max_updates"])))
        return node


def in_small(code):
    """Return a program that does the same with small budgets."""
    return ast.unparse(Shrinking().visit(ast.parse(code)))


def run_python(code):
    """Run a program in small, as the main one."""
    exec(compile(in_small(code), "block", "exec"), {"__name__": "__main__"})


def run_words(words):
    """Run a command in small; make is for others, and examples are files in this folder."""
    if words[0] == "make":
        return
    if words[0] == "python":
        run_python(Path(words[1]).read_text())
    else:
        assert words[0] == "aisle"
        assert shrunk(parse(words[1:])).run() == 0


def shrunk(command):
    """Return a command that does the same with as little work as can be."""
    if isinstance(command, Train) and command.resume is None:
        command.num_updates, command.hours = 2, None
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
