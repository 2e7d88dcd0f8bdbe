"""What an evaluation found, and how it is written down."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aisle.evaluation.diagnostics import is_doubtful, monte_carlo_errors
from aisle.evaluation.folders import save_arrays
from aisle.evaluation.planning import Plan
from aisle.files import finite, json_text, write_bytes, writing
from aisle.provenance import provenance
from aisle.statistics import Mean

# The version of result.json; files of the first edition have none.
FORMAT = 2


class Bidirectional(NamedTuple):
    """Bidirectional Monte Carlo on data simulated from the model, whose log p(x) lies between.

    Attributes:
        lower: stochastic lower bound, of the forward runs.
        upper: stochastic upper bound, of the reverse runs from exact posterior samples.
        gap: upper - lower, of the same examples.
        worst_gap: the largest of an example.
    """

    lower: Mean
    upper: Mean
    gap: Mean
    worst_gap: float


class Importance(NamedTuple):
    """What plain importance sampling says of the same examples.

    Attributes:
        num_samples: K of the bound.
        bound: importance-weighted bound of K samples.
        elbo: evidence lower bound.
        ais_difference: stochastic lower bound by annealing minus `bound`, paired by example.
        active_units: latents whose mean under q varies over the examples by more than 0.01.
        num_latents: of how many.
    """

    num_samples: int
    bound: Mean
    elbo: Mean
    ais_difference: Mean
    active_units: int
    num_latents: int


class Round(NamedTuple):
    """One complete evaluation at one number of temperatures. Prints itself in one line.

    Attributes:
        estimate: mean stochastic lower bound of log p(x).
        bdmc: of this round's kernel, or None if not asked for.
        change: mean rise of the estimate from half of the chains to all of them, about as much as
            more would add; None for one chain.
        decoder_gradients: gradients of log p(x, z) spent; the first round has those of pilots.
        seconds: spent computing.
    """

    num_temperatures: int
    estimate: Mean
    bdmc: Bidirectional | None
    change: float | None
    decoder_gradients: int
    seconds: float

    def __str__(self) -> str:
        words = [f"T={self.num_temperatures}", f"log p(x) >= {self.estimate}"]
        if self.bdmc is not None:
            words.append(f"gap {self.bdmc.gap:.3f}")
        if self.change is not None:
            words.append(f"change {self.change:+.3f}")
        return "   ".join([*words, f"{self.seconds:.0f} s"])


@dataclass(frozen=True, repr=False)
class LogLikelihood:
    """Log-likelihoods of examples, with what they are worth. Prints itself in one line.

    Attributes:
        indices: number of each example.
        log_p: for each example, a stochastic lower bound of log p(x): E[exp(log_p)] = p(x).
        effective_sample_size: of each example's chains.
        pareto_shape: k of each example's largest weights: above 0.7 their mean cannot be trusted.
            Not a number for fewer than ten chains.
        num_nonfinite: transitions of each example that were rejected for an infinite energy.
        acceptance: mean, by inverse temperature.
        betas: inverse temperatures of the reported round, from 0 to 1.
        step_sizes: frozen before the reported round.
        rounds: the last one is the one reported.
        importance: or None if not asked for.
        is_tolerance_reached: or None if none was asked for.
        is_complete: whether all examples, simulated ones too, were done before the time was up.
        settings: everything that the numbers depend on, as plain values.
        whole_split: mean over all examples of the data, estimated with a short run on all of them;
            or None if not asked for.
        plan: of the reported round, or None without a tolerance.
    """

    indices: np.ndarray
    log_p: np.ndarray
    effective_sample_size: np.ndarray
    pareto_shape: np.ndarray
    num_nonfinite: np.ndarray
    acceptance: np.ndarray
    betas: np.ndarray
    step_sizes: np.ndarray
    rounds: list[Round]
    importance: Importance | None
    is_tolerance_reached: bool | None
    is_complete: bool
    settings: Mapping[str, Any]
    whole_split: Mean | None = None
    plan: Plan | None = None

    def __repr__(self) -> str:
        text = f"{self.mean:.2f}"
        if math.isfinite(self.standard_error):
            text += f" +- {self.standard_error:.2f}"
        gap = self.gap
        certificate = "no certificate" if gap is None else f"gap {gap}"
        number = len(self.log_p)
        return f"{text} nats, {certificate}, {number:,} example{'s' if number != 1 else ''}"

    @property
    def estimate(self) -> Mean:
        """Mean over examples, with its standard error."""
        return self.rounds[-1].estimate

    @property
    def mean(self) -> float:
        """Mean stochastic lower bound of log p(x) over the examples, in nats."""
        return self.estimate.mean

    @property
    def standard_error(self) -> float:
        """Standard error of the mean, over examples."""
        return self.estimate.standard_error

    @property
    def gap(self) -> Mean | None:
        """How much too low the mean may be: upper less lower bound on simulated examples."""
        return None if self.bdmc is None else self.bdmc.gap

    @property
    def bdmc(self) -> Bidirectional | None:
        """The certificate of the reported round."""
        return self.rounds[-1].bdmc

    @property
    def monte_carlo_error(self) -> np.ndarray:
        """Standard error of each example's log p(x), to first order, by its chains' weights."""
        return monte_carlo_errors(self.effective_sample_size, self.num_chains)

    @property
    def is_doubtful(self) -> np.ndarray:
        """Whether the log p(x) of each example may be too low by more than its error tells."""
        if self.num_chains == 1:
            return np.zeros(len(self.log_p), bool)
        return is_doubtful(self.monte_carlo_error, self.pareto_shape)

    @property
    def num_chains(self) -> int:
        """C, chains of an example."""
        return self.settings["num_chains"]

    @property
    def num_leapfrog(self) -> int:
        """L of the transition; its gradients, where it is no HMC."""
        return self.settings["num_leapfrog"]

    @property
    def num_temperatures(self) -> int:
        """T of the reported round."""
        return self.rounds[-1].num_temperatures

    @property
    def decoder_gradients(self) -> int:
        """Gradients of log p(x, z) spent in all rounds."""
        return sum(round_.decoder_gradients for round_ in self.rounds)

    @property
    def seconds(self) -> float:
        """Time spent computing in all rounds."""
        return sum(round_.seconds for round_ in self.rounds)


def as_json(result: LogLikelihood) -> dict[str, Any]:
    """Return a result as plain values; what is not finite becomes null."""
    content = {
        "format": FORMAT,
        "what": "stochastic lower bound of log p(x) in nats, by annealed importance sampling",
        "log_likelihood": _plain(result.estimate),
        "whole_split": _plain(result.whole_split),
        "bdmc": _plain(result.bdmc),
        "num_temperatures": result.num_temperatures,
        "num_chains": result.num_chains,
        "num_leapfrog": result.num_leapfrog,
        "decoder_gradients": result.decoder_gradients,
        "seconds": round(result.seconds, 3),
        "effective_sample_size": {
            "mean": float(result.effective_sample_size.mean()),
            "smallest": float(result.effective_sample_size.min()),
        },
        "monte_carlo_error": {
            "median": float(np.median(result.monte_carlo_error)),
            "largest": float(result.monte_carlo_error.max()),
        },
        "num_doubtful_examples": int(result.is_doubtful.sum()),
        "num_nonfinite_transitions": int(result.num_nonfinite.sum()),
        "num_nonfinite_examples": int(np.sum(~np.isfinite(result.log_p))),
        "is_complete": result.is_complete,
        "is_tolerance_reached": result.is_tolerance_reached,
        "plan": _plain(result.plan),
        "importance": _plain(result.importance),
        "rounds": [_plain(round_) for round_ in result.rounds],
        "tuning": "step sizes were tuned on a pilot, with other keys and the examples of the pilot "
        "or simulated ones, and frozen before the reported runs",
        "acceptance": result.acceptance.tolist(),
        "step_sizes": result.step_sizes.tolist(),
        "betas": result.betas.tolist(),
        "settings": dict(result.settings),
        "provenance": provenance(),
    }
    return finite(content)


def save(result: LogLikelihood, folder: Path) -> None:
    """Write result.json, and examples.npz and examples.csv with the numbers of each example."""
    columns = {
        "index": result.indices,
        "log_p": result.log_p,
        "monte_carlo_error": result.monte_carlo_error,
        "effective_sample_size": result.effective_sample_size,
        "pareto_shape": result.pareto_shape,
        "is_doubtful": result.is_doubtful,
        "num_nonfinite": result.num_nonfinite,
    }
    save_arrays(folder / "examples.npz", columns)
    with writing(folder / "examples.csv") as part, part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(a.tolist() for a in columns.values()), strict=True))
    write_bytes(folder / "result.json", json_text(as_json(result), indent=1).encode())


def _plain(value: Any) -> Any:
    """Return named tuples as dictionaries; that of a certificate is flat."""
    if isinstance(value, Bidirectional):
        return {
            "lower": value.lower.mean,
            "lower_standard_error": value.lower.standard_error,
            "upper": value.upper.mean,
            "upper_standard_error": value.upper.standard_error,
            "gap": value.gap.mean,
            "gap_standard_error": value.gap.standard_error,
            "gap_worst": value.worst_gap,
            "num_examples": value.gap.num_examples,
        }
    if isinstance(value, Mean | Importance | Plan | Round):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return value
