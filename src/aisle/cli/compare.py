"""`aisle compare`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from aisle.cli.options import optional
from aisle.cli.output import (
    Columns,
    check_writable,
    plain,
    screen_table,
    show,
    write_json,
)
from aisle.errors import InputError

if TYPE_CHECKING:
    from aisle.evaluation import Comparison

COLUMNS: Columns = {
    "run": "left",
    "log p(x)": "right",
    "gap": "right",
    "behind by": "right",
    "": "left",
}


@dataclass
class Compare:
    """Compare runs by their log-likelihoods of the same test examples.

    For example: aisle compare runs/vae runs/ais

    Runs on different data are not compared. Each must have been evaluated by aisle evaluate.
    Differences are paired by example, in nats. A run is behind the best one if the difference, less
    its own gap, is above two standard errors.
    """

    run_paths: Positional[Annotated[tuple[Path, ...], optional(metavar="RUN RUN [RUN ...]")]]
    """Folders of training runs."""

    json: Annotated[Path | None, optional(metavar="PATH")] = None
    """Also write the comparison as JSON to this file."""

    def run(self) -> int:
        """Print a table for each data set."""
        if len(self.run_paths) < 2:
            raise InputError(f"{len(self.run_paths)} runs are given: give at least 2 to compare")
        if self.json is not None:
            check_writable(self.json, ".json")
        from aisle.evaluation.comparing import compared
        from aisle.report.comparison import compare
        from aisle.report.reading import read_run

        content = {}
        for group in compare([read_run(path) for path in self.run_paths]):
            rivals = {m.name: m.evaluation for m in group.members if m.gain and m.evaluation}
            others = [m.name for m in group.members if m.name not in rivals]
            if others:
                show(
                    f"Not evaluated on the same test examples of {group.data}: {', '.join(others)}"
                )
            if len(rivals) < 2:
                show(
                    f"Of {group.data}, fewer than two runs have evaluations of the same examples: "
                    "make them by aisle evaluate RUN"
                )
                continue
            found = compared({n: (e.log_p, e.means.get("gap")) for n, e in rivals.items()})
            number = len(next(iter(rivals.values())).log_p)
            title = f"{number:,} test examples of {group.data}, nats"
            show(screen_table(title, COLUMNS, found.rows()), conclusion(found))
            content[group.data] = [plain(model) for model in found.models]
        if self.json is not None:
            write_json(self.json, content)
        return 0 if content else 1


def conclusion(found: "Comparison") -> str:
    """Say which model is best, and whether that is decided."""
    if found.is_decided:
        return f"{found.best} is best, beyond gaps and chance."
    level = [model.name for model in found.models[1:] if not model.is_behind]
    return f"{found.best} has the highest log p(x); not decided against {', '.join(level)}."
