"""`aisle selfcheck`."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from aisle.cli.options import optional
from aisle.cli.output import check_writable, table_console, write_json
from aisle.errors import check_seed

if TYPE_CHECKING:
    from aisle.evaluation.selfcheck import Check


@dataclass
class Selfcheck:
    """Check the sampler against exact answers, in under a minute.

    Prints each check's truth, estimate, standard error, z-score and verdict; exits with 1 if any
    check fails.
    """

    json: Annotated[Path | None, optional(metavar="PATH")] = None
    """Also write the numbers, the seed, the versions and the machine to this file."""

    seed: int = 0
    """Seed of all chains."""

    def run(self) -> int:
        """Run all checks and return the exit code."""
        check_seed(self.seed)
        from aisle.provenance import provenance

        if self.json is not None:
            check_writable(self.json, ".json")
        start = time.perf_counter()
        results = _run_groups(self.seed)
        seconds = time.perf_counter() - start
        checks = [check for group in results.values() for check in group]
        num_failed = sum(not check.is_passed for check in checks)
        _print(results, num_failed, seconds)
        if self.json is not None:
            numbers = [
                {"group": title, **check._asdict(), "is_passed": check.is_passed}
                for title, group in results.items()
                for check in group
            ]
            summary = {"is_passed": not num_failed, "num_failed": num_failed, "checks": numbers}
            write_json(
                self.json, {**summary, "seed": self.seed, "seconds": seconds, **provenance()}
            )
        return 1 if num_failed else 0


def _run_groups(seed: int) -> dict[str, list["Check"]]:
    import jax

    from aisle.evaluation.selfcheck import GROUPS

    results = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(GROUPS))
        for index, (title, group) in enumerate(GROUPS.items()):
            progress.update(task, description=title)
            results[title] = group(jax.random.fold_in(jax.random.key(seed), index))
            progress.advance(task)
    return results


def _print(results: dict[str, list["Check"]], num_failed: int, seconds: float) -> None:
    table = Table(title="aisle selfcheck", title_justify="left")
    table.add_column("check", overflow="fold")
    table.add_column("rule")
    for heading in ("truth", "estimate", "std. error", "z"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for title, group in results.items():
        table.add_section()
        table.add_row(Text(title, "bold"))
        for check in group:
            verdict = Text("ok", "green") if check.is_passed else Text("FAILED", "bold red")
            numbers = (check.truth, check.estimate, check.standard_error)
            row = [f"{number:.4f}" for number in numbers]
            table.add_row(f"  {check.name}", check.rule, *row, f"{check.z:.2f}", verdict)
    console = table_console()
    console.print(table)
    num_checks = sum(map(len, results.values()))
    console.print(f"{num_checks - num_failed} of {num_checks} checks passed in {seconds:.0f} s")
