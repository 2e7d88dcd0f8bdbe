"""Models compared by their log-likelihoods of the same examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aisle.errors import InputError
from aisle.evaluation.results import LogLikelihood
from aisle.statistics import Mean, is_ahead, summarise


class Compared(NamedTuple):
    """A model in a comparison.

    Attributes:
        name: that it was given.
        log_p: mean log p(x), a stochastic lower bound.
        gap: how much too low that may be, or None where there is no certificate.
        behind: how much lower it is than that of the best, paired by example; of the best, 0.
        is_behind: whether that is more than its gap and chance explain.
    """

    name: str
    log_p: Mean
    gap: Mean | None
    behind: Mean
    is_behind: bool


@dataclass(frozen=True, repr=False)
class Comparison:
    """Models in the order of their log-likelihoods, the best first. Prints itself as a table.

    Attributes:
        models: what is known of each.
    """

    models: tuple[Compared, ...]

    @property
    def best(self) -> str:
        """The name of the model with the highest mean log p(x)."""
        return self.models[0].name

    @property
    def is_decided(self) -> bool:
        """Whether every other model is clearly behind the best."""
        return all(model.is_behind for model in self.models[1:])

    def rows(self) -> list[list[str]]:
        """Return name, log p(x), gap, distance to the best and what that says, as words."""
        return [
            [
                model.name,
                str(model.log_p),
                "no certificate" if model.gap is None else str(model.gap),
                str(model.behind) if i else "",
                ("behind" if model.is_behind else "not decided") if i else "best",
            ]
            for i, model in enumerate(self.models)
        ]

    def __repr__(self) -> str:
        rows = [HEADINGS, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )
        return "\n".join(lines)


HEADINGS = ["model", "log p(x)", "gap", "behind by", ""]


def compare(results: Mapping[str, LogLikelihood] | Sequence[LogLikelihood]) -> Comparison:
    """Compare models by paired differences of log p(x), with standard errors and gaps.

    A model is behind the best one if the mean difference, less its own gap, is above two standard
    errors: its bound alone may be too low by the gap.

    Example:
        >>> sampler = aisle.Sampler(num_chains=4, num_temperatures=20)
        >>> def result(scale):
        ...     model = aisle.LinearGaussian(jnp.ones((3, 1)), jnp.zeros(3), jnp.log(scale))
        ...     return aisle.log_likelihood(
        ...         model, None, np.zeros((5, 3)), sampler=sampler, show_progress=False,
        ...         certificate=aisle.Certificate(num_examples=10))
        >>> aisle.compare({"narrow": result(1.0), "wide": result(3.0)}).best
        'narrow'

    Args:
        results: of `aisle.log_likelihood` on the same examples, by the names of the models.
    """
    named = dict(results) if isinstance(results, Mapping) else dict(enumerate(results))
    if len(named) < 2:
        raise InputError(f"has {len(named)} models: give at least 2", argument="results")
    first = next(iter(named.values()))
    for name, result in named.items():
        is_same = np.array_equal(result.indices, first.indices)
        if not is_same or result.settings.get("examples") != first.settings.get("examples"):
            raise InputError(
                f"has other examples for {name!r} than for {next(iter(named))!r}: evaluate all "
                "models on the same",
                argument="results",
            )
    return compared({str(name): (own.log_p, own.gap) for name, own in named.items()})


def compared(values: Mapping[str, tuple[np.ndarray, Mean | None]]) -> Comparison:
    """Compare models by log p(x) of each example, and the gap if there is one."""
    with np.errstate(invalid="ignore"):
        means = {name: summarise(log_p) for name, (log_p, _) in values.items()}
        order = sorted(values, key=lambda name: _rank(means[name]), reverse=True)
        best = values[order[0]][0]
        models = []
        for name in order:
            log_p, gap = values[name]
            behind = summarise(best - log_p)
            is_lost = not np.isfinite(means[name].mean) and np.isfinite(means[order[0]].mean)
            is_behind = bool(is_lost) or is_ahead(behind, gap)
            models.append(Compared(name, means[name], gap, behind, is_behind))
    return Comparison(tuple(models))


def _rank(mean: Mean) -> float:
    return mean.mean if np.isfinite(mean.mean) else -np.inf
