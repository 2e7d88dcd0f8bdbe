"""The kernels that are compared: one change at a time, from the paper's to the tuned one."""

from typing import Any

from paper.core.chains import TRAINING, Preset

# A schedule of this study's own: temperatures placed by the log-ratios of a pilot run.
ADAPTED = "adapted"

_WORDS = {
    "num_leapfrog": "L={}",
    "schedule": "{} schedule",
    "precondition": "scale^{:g}",
    "momentum_refresh": "refresh {:g}",
    "target_accept": "target {:g}",
}


def _variant(start: str, **changes: Any) -> tuple[str, Preset]:
    """Change a preset, and name it by what was changed."""
    words = [_WORDS[name].format(value) for name, value in changes.items()]
    # Evenly spaced if nothing else is said: a schedule that stays at the posterior helps training,
    # but what is compared here are weights, which gain nothing there.
    return ", ".join([start, *words]), TRAINING[start]._replace(**{"schedule": "linear", **changes})


def _variants() -> dict[str, Preset]:
    """Return one change at a time: of paper, from paper to tuned, and of tuned."""
    tuned = TRAINING["tuned"]._asdict()
    leapfrog, power, refresh = (
        {name: tuned[name]} for name in ("num_leapfrog", "precondition", "momentum_refresh")
    )
    pairs = [
        _variant("paper"),
        _variant("paper", num_leapfrog=2),
        *(_variant("paper", precondition=value) for value in (0.5, 0.75, 1.0)),
        _variant("paper", **power, **leapfrog),
        _variant("paper", **power, **leapfrog, **refresh),
        _variant("tuned"),
        *(_variant("tuned", precondition=value) for value in (0.5, 1.0)),
        *(_variant("tuned", num_leapfrog=value) for value in (1, 4)),
        _variant("tuned", momentum_refresh=0.4),
        *(_variant("tuned", target_accept=value) for value in (0.65, 0.9)),
        *(_variant("tuned", schedule=value) for value in ("sigmoid", "ramp", ADAPTED)),
        _variant("paper", schedule=ADAPTED),
    ]
    return dict(pairs)


VARIANTS = _variants()
