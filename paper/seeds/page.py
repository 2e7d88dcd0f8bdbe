"""The page, the picture and the numbers of trainings by several seeds."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from aisle.provenance import provenance
from paper.core.effort import Effort
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
from paper.seeds.study import CLAIMS, Asked, Runs, Verdict, gap_of, judge, measure, spread

_COLUMNS: Columns = {
    "way": "left",
    "updates": "right",
    "seconds": "right",
    "log p(x)": "right",
    "over examples": "right",
    "over seeds": "right",
    "gap": "right",
}
_CLAIMS: Columns = {
    "claim": "left",
    "by seed": "right",
    "better by": "right",
    "over examples": "right",
    "over seeds": "right",
    "verdict": "left",
}


def reproduce(out: Path, asked: Asked, effort: Effort) -> None:
    """Train and evaluate, write the files into `out`, and print the tables."""
    make_folder(out)
    found = measure(asked, out, effort)
    verdicts = [judge(claim, found) for claim in CLAIMS]
    paths = [out / f"seeds.{end}" for end in ("json", "md", "png")]
    ways, claims = _ways(found), _lines(verdicts)
    write_json(paths[0], _content(asked, effort, found, verdicts))
    write_text(paths[1], _page(asked, effort, ways, claims))
    save_figure(_picture(verdicts), paths[2], dpi=120)
    show(screen_table(_title(asked), _COLUMNS, ways), screen_table("", _CLAIMS, claims), *paths)


def _title(asked: Asked) -> str:
    number = len(asked.seeds)
    times = "1 seed" if number == 1 else f"{number} seeds"
    return f"The same {asked.minutes:g} minutes on {Path(asked.data).name}, {times}"


def _ways(found: Runs) -> list[list[str]]:
    lines = []
    for name, runs in found.items():
        log_p = spread([run.log_p for run in runs])
        lines.append(
            [
                name,
                f"{np.mean([run.updates for run in runs]):,.0f}",
                f"{np.mean([run.seconds for run in runs]):.0f}",
                f"{log_p.mean:.2f}",
                f"{log_p.over_examples:.2f}",
                f"{log_p.over_seeds:.2f}",
                str(gap_of(runs)),
            ]
        )
    return lines


def _lines(verdicts: list[Verdict]) -> list[list[str]]:
    return [
        [
            claim.text,
            ", ".join(f"{one:.2f}" for one in gain.by_seed),
            f"{gain.mean:.2f}",
            f"{gain.over_examples:.2f}",
            f"{gain.over_seeds:.2f}",
            verdict,
        ]
        for claim, gain, verdict in verdicts
    ]


def _page(asked: Asked, effort: Effort, ways: list[list[str]], claims: list[list[str]]) -> str:
    about = (
        f"For each seed a VAE is trained for {asked.minutes:g} minutes, and then each way for as "
        "long from its weights, with the same rate; the weights of the best bound on "
        f"validation data are kept. log p(x): of {effort.num_examples:,} test examples in nats, a "
        "stochastic lower bound, the mean over examples and seeds with the standard errors over "
        "both. gap: by how much it may be too low, by bidirectional Monte Carlo. A claim is "
        "decided if the lead exceeds the gap of the way behind by two standard errors, those over "
        "seeds widened by Student's t for so few."
    )
    parts = [
        f"# {_title(asked)}",
        markdown_table(_CLAIMS, claims),
        markdown_table(_COLUMNS, ways),
        about,
        "![leads](seeds.png)",
    ]
    return "\n\n".join(parts) + "\n"


def _content(asked: Asked, effort: Effort, found: Runs, verdicts: list[Verdict]) -> dict[str, Any]:
    ways = {
        name: [
            {
                "log_p": [round(float(value), 4) for value in run.log_p],
                "gap": run.gap._asdict(),
                "updates": run.updates,
                "seconds": run.seconds,
            }
            for run in runs
        ]
        for name, runs in found.items()
    }
    claims = [
        {"claim": claim.text, **gain._asdict(), "verdict": verdict}
        for claim, gain, verdict in verdicts
    ]
    return {
        "data": Path(asked.data).name,
        "minutes": asked.minutes,
        "seeds": list(asked.seeds),
        "evaluation": effort._asdict(),
        "claims": claims,
        "ways": ways,
        **provenance(),
    }


def _picture(verdicts: list[Verdict]) -> Figure:
    """Draw each lead with two errors, and that of each seed as a point."""
    figure = Figure((6.0, 3.2), layout="constrained")
    axes = figure.subplots()
    quieten(axes)
    for place, (_, gain, _) in enumerate(verdicts):
        axes.scatter(gain.by_seed, [place] * len(gain.by_seed), s=10, color=FAINT, zorder=3)
        one = gain.as_one
        axes.errorbar(
            one.mean, place, xerr=2 * one.standard_error, fmt="o", ms=4, lw=1.2, color="#1f78b4"
        )
    axes.axvline(0, lw=0.6, color=FAINT)
    axes.set_yticks(range(len(verdicts)), [verdict.claim.text for verdict in verdicts])
    axes.set_ylim(len(verdicts) - 0.5, -0.5)
    axes.set_xlabel("better by, nats", fontsize=8, color=INK)
    return figure
