"""How the options of runs are typed: short names, placeholders, and what a cluster needs."""

import dataclasses
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tyro.conf import OmitArgPrefixes, arg

from aisle.runs import options

# An option whose text says what holds without it.
optional = partial(arg, help_behavior_hint="")

# What several commands take alike.
RunPath = Annotated[Path, arg(metavar="RUN", help="Folder of a training run.")]
ModelName = Annotated[
    str | None,
    optional(
        metavar="MODULE:FUNCTION",
        help="For a run of aisle.fit: the function that builds its networks, called with --data.",
    ),
]
DataName = Annotated[
    str | None,
    optional(
        metavar="DATA",
        help="For a run of aisle.fit: its data, a named set, a table, or an .npy or .npz file.",
    ),
]
MovedData = Annotated[
    Path | None,
    optional(
        metavar="DIR",
        help="Folder of the named data sets, or of the file, if it has moved since training.",
    ),
]

_PLACEHOLDERS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


def flags(group: type, **details: dict[str, Any]) -> Any:
    """Return a group of options as the command line takes it.

    What may be None has no default in its help, as its text says what holds then; `details` are
    the short names, long names and placeholders of options.
    """
    hints = get_type_hints(group)
    fields = []
    for option in dataclasses.fields(group):
        hint, detail = hints[option.name], details.get(option.name, {})
        if get_origin(hint) in (types.UnionType, Union):
            kind = next(kind for kind in get_args(hint) if kind is not type(None))
            detail = {"metavar": _placeholder(kind), **detail}
            hint = Annotated[hint, optional(**detail)]
        elif detail:
            hint = Annotated[hint, arg(**detail)]
        fields.append((option.name, hint, option))
    return dataclasses.make_dataclass(group.__name__, fields, bases=(group,), frozen=True)


def _placeholder(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    return _PLACEHOLDERS[kind]


if TYPE_CHECKING:
    from aisle.runs.options import (
        DataOptions as DataFlags,
        EvaluateConfig as EvaluateFlags,
        MethodOptions as MethodFlags,
        ModelOptions as ModelFlags,
        OptimizerOptions as OptimizerFlags,
        RunOptions as RunFlags,
        SamplerOptions as SamplerFlags,
    )
else:
    MethodFlags = flags(
        options.MethodOptions,
        num_samples={"aliases": ["-K"]},
        num_temperatures={"aliases": ["-T"]},
        num_leapfrog={"aliases": ["-L"]},
    )
    ModelFlags = flags(
        options.ModelOptions, model={"metavar": "MODEL"}, init_from={"metavar": "RUN|FILE"}
    )
    DataFlags = flags(
        options.DataOptions,
        condition={"metavar": "[COLUMN ...]", "help_behavior_hint": ""},
        exposure={"metavar": "COLUMN|total"},
        weights={"metavar": "COLUMN"},
        data_dir={"metavar": "DIR"},
    )
    OptimizerFlags = flags(options.OptimizerOptions)
    RunFlags = flags(options.RunOptions)
    SamplerFlags = flags(
        options.SamplerOptions,
        num_chains={"name": "chains", "aliases": ["-C", "--num-chains"]},
        num_temperatures={"name": "temperatures", "aliases": ["-T", "--num-temperatures"]},
        num_leapfrog={"name": "leapfrog", "aliases": ["-L", "--num-leapfrog"]},
        refit={"metavar": "UPDATES"},
        tolerance={"metavar": "NATS"},
        max_seconds={"metavar": "SECONDS"},
    )
    # The sampler's options are a group of their own.
    EvaluateFlags = flags(
        options.EvaluateConfig,
        whole_split={"metavar": "T"},
        data={"metavar": "DATA"},
        data_dir={"metavar": "DIR"},
        sampler={"name": "sampler"},
    )


# Groups whose name in the help is not that of the field.
DataGroup = Annotated[OmitArgPrefixes[DataFlags], arg(name="data")]
RunGroup = Annotated[OmitArgPrefixes[RunFlags], arg(name="run")]


@dataclass(frozen=True)
class DistributedOptions:
    """Several processes that work as one, on one machine or on many."""

    distributed: bool = False
    """Join the other processes.
    On Slurm, Open MPI, Kubernetes and TPU pods nothing else is needed.
    Elsewhere give the next three too."""

    coordinator: Annotated[str | None, optional(metavar="HOST:PORT")] = None
    """Address of the first process."""

    num_processes: Annotated[int | None, optional(metavar="INT")] = None
    """How many there are."""

    process_id: Annotated[int | None, optional(metavar="INT")] = None
    """Which one this is, from 0; the first one writes and prints."""


Cluster = Annotated[OmitArgPrefixes[DistributedOptions], arg(name="cluster")]
