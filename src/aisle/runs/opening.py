"""Opening what was trained: runs, and files of exported weights."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle.data import Column, Dataset, Split, load as read_data
from aisle.data.arrays import is_file_name
from aisle.errors import InputError
from aisle.learning.history import report
from aisle.runs import checkpoints, folder, weights
from aisle.runs.config import NOT_A_CONFIG, from_json, to_json
from aisle.runs.forms import form_from
from aisle.runs.networks import Weights, build, build_named, rebuild
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
) -> Run:
    """Load the weights of a run's newest checkpoint that is whole.

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
    """
    path = Path(path)
    stored = folder.read_config(path)
    config = None if "fit" in stored and model is not None else from_json(stored, path)
    with _described(path / "config.json"):
        shape = tuple(map(int, stored["data"].get("shape", ())))
    if model is None and config is not None:
        both = _networks(path, stored, config, shape, data_dir)
    else:
        both = (model, proposal)
    arrays, static = eqx.partition(both, eqx.is_inexact_array)
    found = checkpoints.restore(path, lambda _: arrays, parts=_PARTS, report=report)
    if found is None:
        raise InputError(f"{path} has no checkpoint yet: resume its training first")
    update, arrays = found
    _check_finite(arrays, path, update)
    return Run(path, stored, config, shape, update, *eqx.combine(arrays, static))


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
        **roles_of(stored, config),
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


def columns_of(stored: Mapping[str, Any], role: str = "columns") -> list[Column] | None:
    """Return the columns, or conditions, of the table that a run was trained on, or None."""
    columns = stored["data"].get(role)
    if columns is None:
        return None
    return [Column(name, kind, tuple(levels)) for name, kind, levels in columns]


def roles_of(stored: Mapping[str, Any], config: TrainConfig) -> dict[str, Any]:
    """Return what columns of a table are to a run, as `load` and `read_table` take it."""
    return {
        "columns": columns_of(stored),
        "condition": columns_of(stored, "conditions") or (),
        "exposure": config.observations.exposure,
    }


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
    arrays = eqx.filter((run.model, run.proposal), eqx.is_inexact_array)
    named = dict(zip(("model", "proposal"), arrays, strict=True))
    metadata: dict[str, Any] = {**(about or {}), "shape": list(run.shape)}
    if run.config is not None:
        # Where the weights started from does not change what they are.
        model = dataclasses.replace(run.config.model, init_from=None)
        metadata["model"] = to_json(dataclasses.replace(run.config, model=model))["model"]
        metadata |= {
            k: v for k, v in run.stored["data"].items() if k in ("columns", "conditions", "form")
        }
    weights.export(path, named, metadata)


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
    path = Path(path)
    file = path / EXPORTED if (path / EXPORTED).is_file() else path
    if file.suffix != weights.SUFFIX or file.is_dir():
        run = open_run(path, model, proposal)
        return run.model, run.proposal
    metadata = weights.read_metadata(file)
    both = (model, proposal) if model is not None else _exported(file, metadata)
    arrays, static = eqx.partition(both, eqx.is_inexact_array)
    loaded = weights.load(file, dict(zip(("model", "proposal"), arrays, strict=True)))
    return eqx.combine((loaded["model"], loaded["proposal"]), static)


def _exported(path: Path, metadata: Mapping[str, Any]) -> Weights:
    try:
        options = dict(metadata["model"])
        if options.pop("proposal", "diagonal") != "diagonal" or ":" in options["model"]:
            raise KeyError("model")
        model = ModelOptions(**{"network": "study", **options})
        shape, form = metadata["shape"], metadata.get("form")
    except (KeyError, TypeError):
        raise InputError(
            f"{path} holds weights of a model that only your program has: give that too, by "
            "aisle.load(path, model, proposal)"
        ) from None
    with _described(path):
        _check_size(path, model, form, shape)
        return _like_those(model, form, shape, seed=0)


@contextmanager
def _described(path: Path) -> Iterator[None]:
    """Say in one line that a file describes no networks."""
    try:
        yield
    except InputError:
        raise
    except (*NOT_A_CONFIG, IndexError, MemoryError, NotImplementedError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{path} describes networks that cannot be built ({reason}): restore it from a backup"
        ) from None


def _check_size(
    path: Path, model: ModelOptions, form: Mapping[str, Any] | None, shape: Sequence[int]
) -> None:
    """Refuse a description of networks that are larger than their file, before they are built."""
    size = path.stat().st_size
    needed = math.prod(shape)
    if needed <= size:
        like = eqx.filter_eval_shape(lambda: _like_those(model, form, shape, seed=0))
        leaves = [a for a in jax.tree.leaves(like) if isinstance(a, jax.ShapeDtypeStruct)]
        needed = sum(a.size for a in leaves if jnp.issubdtype(a.dtype, jnp.inexact))
    if needed > size:
        raise InputError(
            f"{path} describes networks of {needed:,} numbers, which do not fit into its "
            f"{size:,} bytes: export it again"
        )


def _networks(
    path: Path,
    stored: Mapping[str, Any],
    config: TrainConfig,
    shape: tuple[int, ...],
    data_dir: Path | None,
) -> Weights:
    """Build networks whose weights are then replaced."""
    if not config.is_own_model:
        with _described(path / "config.json"):
            return _like_those(config.model, stored["data"].get("form"), shape, config.run.seed)
    return build(config.model, data_of(path, stored, config, data_dir), config.run.seed)


def _like_those(
    model: ModelOptions, form: Mapping[str, Any] | None, shape: Sequence[int], seed: int
) -> Weights:
    if form is not None:
        return rebuild(model, form_from(form), seed)
    return build_named(model, np.full(math.prod(shape), 0.5), seed)


def _check_finite(arrays: Any, path: Path, update: int) -> None:
    """Refuse a run whose weights are of no use."""
    if not all(bool(jnp.all(jnp.isfinite(a))) for a in jax.tree.leaves(arrays)):
        raise InputError(
            f"the weights of {path} at update {update} are not all finite: train again with a "
            "lower learning rate"
        )
