"""Figures and lists as text."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from aisle.statistics import Mean

# A narrow space that does not break keeps a figure and its error on one line.
_MINUS, _SPACE = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}"
NOT_FINITE = "not finite"


def number(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """Write a figure with a real minus sign, and no minus before zero."""
    if not math.isfinite(value):
        return NOT_FINITE
    return f"{value:{'+' if sign else ''}z,.{digits}f}".replace("-", _MINUS)


def with_error(mean: Mean, digits: int = 2, *, sign: bool = False) -> str:
    """Write a mean and, where there is one, its standard error."""
    text = number(mean.mean, digits, sign=sign)
    if not (math.isfinite(mean.mean) and math.isfinite(mean.standard_error)):
        return text
    return f"{text}{_SPACE}±{_SPACE}{number(mean.standard_error, digits)}"


def exact(mean: Mean, digits: int = 2, *, sign: bool = False) -> Markup:
    """Mark a mean up so that the page holds all its digits, for those who read it by program."""
    text = with_error(mean, digits, sign=sign)
    return Markup('<data value="{}">{}</data>').format(repr(float(mean.mean)), text)


def joined(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def counted(value: int, noun: str) -> str:
    """Return `1 run` or `2 runs`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"
