"""The page, the picture and the numbers of a long training."""

from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from aisle.provenance import provenance
from aisle.runs.options import TrainConfig
from paper.core.effort import Effort
from paper.hours.study import RECORD, Trained, measure
from paper.output import (
    Columns,
    make_folder,
    markdown_table,
    screen_table,
    show,
    write_json,
    write_text,
)
from paper.pictures import FAINT, INK, quieten, save_figure
from paper.tables.maker import PAPER

_COLUMNS: Columns = {"of": "left", "nats": "right"}


class Published(NamedTuple):
    """The highest log p(x) of test data that we know of.

    Attributes:
        source: who published it, for which networks.
    """

    value: float
    source: str


_STATIC = "static_binarized.npz"
_STUDY, _PYTHAE = "the IWAE study, two layers, K = 50", "pythae's IWAE, one layer, K = 50"
_BEST = {
    ("mnist", "two-layer"): Published(-82.90, _STUDY),
    ("omniglot", "two-layer"): Published(-103.38, _STUDY),
    # The bits of Larochelle, which do not change: the IWAE study has -87.10 there.
    (_STATIC, "one-layer"): Published(-86.82, _PYTHAE),
    (_STATIC, "two-layer"): Published(-86.82, _PYTHAE),
}
_BEST |= {
    (data, "one-layer"): Published(max(v for k, v in PAPER.items() if k[0] == data), "the paper")
    for data in ("mnist", "omniglot")
}
# With these options the model is of other observations, or is another.
_NOT_COMPARABLE = {"--binarize", "--grey", "--likelihood"}


def reproduce(out: Path, config: TrainConfig, hours: float, effort: Effort) -> None:
    """Train and evaluate, write the files into `out`, and print the table."""
    make_folder(out)
    found = measure(config, hours, out, effort)
    paths = [out / RECORD, out / "hours.md", out / "hours.png"]
    # Not where somebody keeps it.
    data = Path(config.data).name
    best = published(data, config.model.model, found.command)
    rows = _rows(found, best)
    write_json(paths[0], _content(found, config, hours, effort))
    write_text(paths[1], _page(found, rows, data))
    save_figure(_picture(found, best), paths[2], dpi=120)
    show(screen_table(_title(found, data), _COLUMNS, rows), *paths)


def _title(found: Trained, data: str) -> str:
    return f"log p(x) of {data} after {found.hours:.1f} hours of training"


def _rows(found: Trained, best: Published | None) -> list[list[str]]:
    rows = [
        ["test data, the whole split", f"{found.test:.2f}"],
        ["the gap of that bound", f"{found.gap:.2f}"],
        ["training data", f"{found.train:.2f}"],
    ]
    if best is not None:
        rows.append([f"test data, the best of {best.source}", f"{best.value:.2f}"])
    return rows


def published(data: str, model: str, command: str) -> Published | None:
    """Return the best by any method that we know of, if the command models the same."""
    if _NOT_COMPARABLE & set(command.split()):
        return None
    return _BEST.get((data, model))


def _page(found: Trained, rows: list[list[str]], data: str) -> str:
    before = "".join(f"`{one.command}`, then from its weights " for one in found.before)
    about = (
        f"{before}`{found.command}`, without a look at test data before "
        f"{'the end of each' if found.before else 'its end'}: "
        f"{found.updates:,} updates in {found.seconds / 3600:.1f} hours. Means of "
        "stochastic lower bounds with standard errors over examples; the gap of bidirectional "
        "Monte Carlo says by how much that on test data may be too low. What training data have "
        "more than test data is overfitting; their bound is by fewer temperatures, and less tight. "
        "The curve before the end is that of validation data, "
        "shifted to meet test data there."
    )
    table = markdown_table(_COLUMNS, rows)
    return "\n\n".join([f"# {_title(found, data)}", table, about, "![curve](hours.png)"]) + "\n"


def _content(found: Trained, config: TrainConfig, hours: float, effort: Effort) -> dict[str, Any]:
    means = {name: getattr(found, name)._asdict() for name in ("test", "train", "gap")}
    return {
        "data": Path(config.data).name,
        "model": config.model.model,
        "seed": config.run.seed,
        "hours": hours,
        "command": found.command,
        "before": [stage._asdict() for stage in found.before],
        "evaluation": effort._asdict(),
        "evaluation_of_training_data": effort.of_training()._asdict(),
        "updates": found.updates,
        "seconds": found.seconds,
        **means,
        "curve": [{"hours": point.hours, **point.log_p._asdict()} for point in found.curve],
        **provenance(),
    }


def _picture(found: Trained, best: Published | None) -> Figure:
    """Draw log p(x) against hours, with what was found at the end.

    Test data are evaluated only at the end; the curve is that of validation data, shifted to meet
    them there, as differences are known better than levels.
    """
    figure = Figure((5.5, 3.4), layout="constrained")
    axes = figure.subplots()
    quieten(axes)
    level = found.test.mean - found.curve[-1].log_p.mean if found.curve else 0.0
    before = [level + point.log_p.mean for point in found.curve]
    axes.plot(
        [point.hours for point in found.curve],
        before,
        color="#1f78b4",
        lw=1.2,
        marker="o",
        ms=3,
        label="validation data, shifted to meet test data",
    )
    for name, mean, colour in (
        ("test", found.test, "#c0392b"),
        ("training", found.train, "#33a02c"),
    ):
        axes.errorbar(
            found.hours,
            mean.mean,
            yerr=2 * mean.standard_error,
            fmt="o",
            ms=4,
            color=colour,
            label=f"{name} data, long chains",
        )
    if best is not None:
        axes.axhline(best.value, color=FAINT, lw=0.8, ls="--", label=f"best of {best.source}, test")
    # The first minutes may be far below.
    axes.set_ylim(max(min([found.test.mean, *before]), found.test.mean - 6) - 1, None)
    axes.set_xlabel("hours", fontsize=8, color=INK)
    axes.set_ylabel("log p(x), nats", fontsize=8, color=INK)
    axes.legend(fontsize=7, frameon=False)
    return figure
