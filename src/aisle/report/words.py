"""Numbers and lists as text."""

import math
from collections.abc import Sequence

from aisle.statistics import Mean

# A narrow space that does not break keeps a number and its error on one line.
_MINUS, _SPACE = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}"


def number(value: float | int, digits: int = 2, *, sign: bool = False) -> str:
    """Write a number with a real minus sign, and no minus before zero."""
    if not math.isfinite(value):
        return "not finite"
    return f"{value:{'+' if sign else ''}z,.{digits}f}".replace("-", _MINUS)


def with_error(mean: Mean, digits: int = 2, *, sign: bool = False) -> str:
    """Write a mean and, where there is one, its standard error."""
    text = number(mean.mean, digits, sign=sign)
    if not (math.isfinite(mean.mean) and math.isfinite(mean.standard_error)):
        return text
    unit = 10.0**-digits
    if max(abs(mean.mean), mean.standard_error) < unit / 2:
        # 0.00 ± 0.00 would read like a fault.
        return f"less than {unit:g}"
    return f"{text}{_SPACE}±{_SPACE}{number(mean.standard_error, digits)}"


def joined(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
