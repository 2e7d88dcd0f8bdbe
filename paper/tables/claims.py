"""What the cells of a table decide of its claims, each that one cell is better than another."""

from collections.abc import Mapping
from typing import NamedTuple

from aisle.statistics import CLEAR, Mean, is_ahead
from paper.tables.cells import Cell, CellResult, FinishedCell, difference


class Claim(NamedTuple):
    """A statement that one cell is better than another."""

    text: str
    better: str
    worse: str


def beats(better: Cell, worse: Cell) -> Claim:
    """Claim that one cell is better than another."""
    return Claim(f"{better.name} beats {worse.name}", better.name, worse.name)


class Verdict(NamedTuple):
    """What is known of a claim.

    Attributes:
        gain: by how much the one cell is better, on the same examples; None if they are not known
            to be the same.
    """

    claim: str
    gain: Mean | None
    verdict: str


def judge(claim: Claim, done: Mapping[str, FinishedCell]) -> Verdict | None:
    """Compare two cells on the same examples, if both are here."""
    if claim.better not in done or claim.worse not in done:
        return None
    better, worse = done[claim.better], done[claim.worse]
    gain = difference(better, worse)
    if gain is None:
        return Verdict(claim.text, None, "undecided: the cells are of different data")
    return by_gain(claim, gain, better.result, worse.result)


def by_gain(claim: Claim, gain: Mean, better: CellResult, worse: CellResult) -> Verdict:
    """Decide by a difference on the same examples: it must exceed the gap of the one behind."""
    verdict = "undecided"
    if is_ahead(gain, worse.gap):
        verdict = "holds"
    elif is_ahead(gain._replace(mean=-gain.mean), better.gap):
        verdict = "does not hold"
    elif abs(gain.mean) > CLEAR * gain.standard_error:
        verdict = "undecided: the gap may be larger"
    return Verdict(claim.text, gain, verdict)
