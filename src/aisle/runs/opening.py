"""Opening what was trained: runs, and files of exported weights."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle.data import Column, Dataset, Split, load as read_data
from aisle.data.arrays import is_file_name
from aisle.errors import InputError, first_line
from aisle.learning.history import report
from aisle.runs import checkpoints, folder, weights
from aisle.runs.config import NOT_A_CONFIG, from_json, to_json
from aisle.runs.forms import Form, form_from
from aisle.runs.networks import Weights, build, rebuild
from aisle.runs.options import ModelOptions, TrainConfig
from aisle.types import Model, Proposal

# The weights in a folder of `aisle export`.
EXPORTED = f"model{weights.SUFFIX}"
# Where a checkpoint may have the weights to use, the first edition's last.
_PARTS = ("best/weights", "state/average", "state/params", "average", "params")


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """A run opened again: its configuration, and its weights at the newest checkpoint.

    Attributes:
        path: its folder.
        stored: what its config.json holds.
        config: how it was trained; None for a run of `aisle.fit`.
        shape: of one example, for pictures; empty where that is not known.
        update: number of updates made.
        model: with the best weights on validation data, or averaged ones, as the run kept them.
        proposal: likewise.
    """

    path: Path
    stored: Mapping[str, Any]
    config: TrainConfig | None
    shape: tuple[int, ...]
    update: int
    model: Any
    proposal: Any

    def __repr__(self) -> str:
        return f"{self.path} at update {self.update:,}"

    @property
    def num_planned(self) -> int:
        """Updates that the run is to make in all."""
        if "ends" in self.stored:
            return self.stored["ends"][-1]
        assert self.config is not None
        per_epoch = self.stored["data"]["num_train"] // self.config.optimizer.batch_size
        return (self.config.num_epochs or 0) * per_epoch


def open_run(
    path: str | Path,
    model: Model | None = None,
    proposal: Proposal | None = None,
    *,
    data_dir: Path | None = None,
    update: int | None = None,
) -> Run:
    """Load the weights of a run's newest checkpoint that is whole, or of an earlier one.

    Example:
        >>> run = aisle.open_run(FIRST_RUN)
        >>> type(run.model).__name__, run.update
        ('OneLayerModel', 22)

    Args:
        path: folder of the run.
        model: as it was given to `aisle.fit`, for a run of that: it says where weights belong.
        proposal: likewise.
        data_dir: where its data are now, if they have moved: a function that builds networks,
            MODULE:FUNCTION, is called with them.
        update: at which the checkpoint was made, if not the newest; see `--keep-checkpoints`.
    """
    _check_pair(model, proposal)
    path = Path(path)
    stored = folder.read_config(path)
    config = None if "fit" in stored and model is not None else from_json(stored, path)
    with _described(path / "config.json"):
        shape = tuple(map(int, stored["data"].get("shape", ())))
    if model is not None or config is None:
        both = (model, proposal)
    elif config.model.is_own:
        both = build(config.model, data_of(path, stored, config, data_dir), config.run.seed)
    else:
        with _described(path / "config.json"):
            both = rebuild(config.model, form_from(stored["data"].get("form")), shape)
    arrays, static = eqx.partition(both, eqx.is_inexact_array)
    found = checkpoints.restore(path, lambda _: arrays, parts=_PARTS, only=update, report=report)
    if found is None:
        known = checkpoints.updates(path)
        if update is None or not known:
            raise InputError(f"{path} has no checkpoint yet: resume its training first")
        raise InputError(
            f"is {update}, of which {path} has no checkpoint: choose from "
            f"{', '.join(map(str, known))}",
            argument="update",
        )
    update, arrays = found
    _check_finite(arrays, path, update)
    return Run(path, stored, config, shape, update, *eqx.combine(arrays, static))


def _check_pair(model: Model | None, proposal: Proposal | None) -> None:
    if (model is None) != (proposal is None):
        raise InputError("give both a model and a proposal, or neither of them")


def load_data(run: Run, data_dir: Path | None = None) -> Dataset:
    """Load the data of a run again, perhaps from another folder; see that they are the same."""
    assert run.config is not None
    return data_of(run.path, run.stored, run.config, data_dir)


def data_of(
    path: Path, stored: Mapping[str, Any], config: TrainConfig, data_dir: Path | None = None
) -> Dataset:
    """Load the data that a run in `path` was trained on, and see that they are the same."""
    name, seen = config.data, config.observations
    if is_file_name(name):
        name = str(data_dir / Path(name).name) if data_dir else name
        if not Path(name).is_file():
            raise InputError(
                f"{name}, which {path} was trained on, is not there: put it back, or name the "
                "folder where it is with --data-dir"
            )
    dataset = read_data(
        name,
        data_dir or seen.data_dir,
        view=config.view(),
        num_valid=seen.num_valid,
        weights=seen.weights,
        **roles_of(stored, config)._asdict(),
    )
    if stored["format"] == 1 and dataset.train.arrays.dtype == np.uint8 and not seen.grey:
        # The first edition divided them all.
        grey = dataclasses.replace(config, observations=dataclasses.replace(seen, grey=True))
        return data_of(path, stored, grey, data_dir)
    if stored["data"].get("digests") != facts(dataset)["digests"]:
        raise InputError(
            f"{dataset.source} is not what {path} was trained on: put the same data back, or train "
            "a new run on these"
        )
    return dataset


class Roles(NamedTuple):
    """What columns of a table are to a run, as `load` and `read_table` take it."""

    columns: list[Column] | None
    condition: list[Column]
    exposure: str | None


def roles_of(stored: Mapping[str, Any], config: TrainConfig | None) -> Roles:
    """Return the roles of columns in a run; without a table, there are none."""

    def read(name: str) -> list[Column]:
        columns = stored["data"].get(name) or ()
        return [Column(column, kind, tuple(levels)) for column, kind, levels in columns]

    exposure = None if config is None else config.observations.exposure
    return Roles(read("columns") or None, read("conditions"), exposure)


def facts(dataset: Dataset) -> dict[str, Any]:
    """Return what a run notes of its data."""
    table = dataset.table
    roles = {} if table is None else {"columns": table.columns, "conditions": table.conditions}
    return {
        **{k: [[c.name, c.kind, list(c.levels)] for c in v] for k, v in roles.items() if v},
        "name": dataset.name,
        "source": dataset.source,
        "shape": list(dataset.shape),
        **{f"num_{name}": len(split) for name, split in dataset.splits.items()},
        "digests": {name: _digest(name, split) for name, split in dataset.splits.items()},
    }


def _digest(name: str, split: Split) -> str:
    # Only training looks at weights, and other data need not have them.
    return (split if name == "train" else dataclasses.replace(split, weights=None)).digest()


def export_run(run: Run, path: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write a run's weights, with the configuration needed to load them back, and what else."""
    both = {"model": run.model, "proposal": run.proposal}
    metadata: dict[str, Any] = {**(about or {}), "shape": list(run.shape)}
    if run.config is not None:
        # Where the weights started from does not change what they are.
        metadata["model"] = to_json(run.config)["model"] | {"init_from": None}
        metadata |= {
            k: v for k, v in run.stored["data"].items() if k in ("columns", "conditions", "form")
        }
    weights.export(path, eqx.filter(both, eqx.is_inexact_array), metadata)


def load(path: str | Path, model: Model | None = None, proposal: Proposal | None = None) -> Weights:
    """Load the (model, proposal) of what `aisle export` wrote, a folder or a file, or of a run.

    Example:
        >>> model, proposal = aisle.load(FIRST_RUN)
        >>> type(model).__name__
        'OneLayerModel'

    Args:
        path: of the folder, or of the .safetensors file.
        model: networks of the same kind, for weights of a model of your own.
        proposal: likewise.
    """
    _check_pair(model, proposal)
    path = Path(path)
    file = path / EXPORTED if (path / EXPORTED).is_file() else path
    if file.suffix != weights.SUFFIX or file.is_dir():
        run = open_run(path, model, proposal)
        return run.model, run.proposal
    metadata = weights.read_metadata(file)
    if model is None:
        model, proposal = _exported(file, metadata)
    both = {"model": model, "proposal": proposal}
    arrays, static = eqx.partition(both, eqx.is_inexact_array)
    loaded = eqx.combine(weights.load(file, arrays), static)
    return loaded["model"], loaded["proposal"]


def _exported(path: Path, metadata: Mapping[str, Any]) -> Weights:
    try:
        options = dict(metadata["model"])
        is_diagonal = options.pop("proposal", "diagonal") == "diagonal"
        model = ModelOptions(**{"network": "study", **options})
        if model.is_own or not is_diagonal:
            raise KeyError("model")
        shape = metadata["shape"]
    except (KeyError, TypeError):
        raise InputError(
            f"{path} holds weights of a model that only your program has: give that too, by "
            "aisle.load(path, model, proposal)"
        ) from None
    with _described(path):
        form = form_from(metadata.get("form"))
        _check_size(path, model, form, shape)
        return rebuild(model, form, shape)


@contextmanager
def _described(path: Path) -> Iterator[None]:
    """Say in one line that a file describes no networks."""
    try:
        yield
    except InputError:
        raise
    except (*NOT_A_CONFIG, IndexError, MemoryError, NotImplementedError, OverflowError) as error:
        raise InputError(
            f"{path} describes networks that cannot be built ({first_line(error)}): restore it "
            "from a backup"
        ) from None


def _check_size(path: Path, model: ModelOptions, form: Form | None, shape: Sequence[int]) -> None:
    """Refuse a description of networks that are larger than their file, before they are built."""
    size = path.stat().st_size
    needed = math.prod(shape)
    if needed <= size:
        like = eqx.filter_eval_shape(lambda: rebuild(model, form, shape))
        leaves = [a for a in jax.tree.leaves(like) if isinstance(a, jax.ShapeDtypeStruct)]
        needed = sum(a.size for a in leaves if jnp.issubdtype(a.dtype, jnp.inexact))
    if needed > size:
        raise InputError(
            f"{path} describes networks of {needed:,} numbers, which do not fit into its "
            f"{size:,} bytes: export it again"
        )


def _check_finite(arrays: Any, path: Path, update: int) -> None:
    """Refuse a run whose weights are of no use."""
    if not all(bool(jnp.all(jnp.isfinite(a))) for a in jax.tree.leaves(arrays)):
        raise InputError(
            f"the weights of {path} at update {update} are not all finite: train again with a "
            "lower learning rate"
        )
