"""A training run on disk: how to start it, go on with it, and open it again."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle import processes
from aisle.annealing import presets
from aisle.data import Dataset, check_bits, check_values, feature_ranges, load
from aisle.data.arrays import is_file_name
from aisle.errors import InputError, check_seed
from aisle.experiments.options import (
    DataOptions,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    TrainConfig,
)
from aisle.learning import checkpoints, run_directory, weights_file
from aisle.learning.loop import report
from aisle.learning.trainer import Fitted, fit
from aisle.models.iwae_study import (
    Encoder,
    OneLayerModel,
    TwoLayerModel,
    TwoLayerProposal,
    build,
)
from aisle.types import PRNGKey

# How far values range in features that were standardised, with a wide margin.
_USUAL_RANGES = (0.5, 100.0)

Weights = tuple[OneLayerModel | TwoLayerModel, Encoder | TwoLayerProposal]


class Run(NamedTuple):
    """A run opened again: its configuration, and its weights at the newest checkpoint.

    Attributes:
        shape: of one example, for pictures.
        update: number of updates made.
        model: with averaged weights, if the run kept an average.
        proposal: likewise.
    """

    path: Path
    config: TrainConfig
    shape: tuple[int, ...]
    update: int
    model: OneLayerModel | TwoLayerModel
    proposal: Encoder | TwoLayerProposal


def train(config: TrainConfig, out: Path, *, show_progress: bool = True) -> Fitted:
    """Start a new run in the folder `out`, which must not exist or be empty."""
    config = complete(_absolute(config))
    dataset = load(config.data, config.observations.data_dir)
    check_data(dataset, config)
    stored = {"train": to_json(config), "data": _facts(dataset)}
    return _fit(config, dataset, out, show_progress, config=stored)


def resume(
    out: Path,
    num_epochs: int | None = None,
    data_dir: Path | None = None,
    *,
    show_progress: bool = True,
) -> Fitted:
    """Go on with a run from its newest checkpoint, perhaps to more epochs than planned.

    Args:
        out: its folder.
        num_epochs: None for those that were planned.
        data_dir: where its data are now, if they have moved.
        show_progress: whether to show a progress bar.
    """
    stored = run_directory.read_config(out)
    config = from_json(stored, out)
    if num_epochs is not None and num_epochs < config.num_epochs:
        raise InputError(
            f"epochs is {num_epochs} but {out} was planned for {config.num_epochs}: a run can be "
            "extended, not cut"
        )
    dataset = load_data(out, config, data_dir)
    if num_epochs is not None and num_epochs > config.num_epochs:
        config = dataclasses.replace(config, num_epochs=num_epochs)
        stored = {**stored, "train": to_json(config)}
        processes.first_does(lambda: _update_config(out, stored))
    if checkpoints.latest(out) is not None:
        # Its own weights take the place of those it started from, which may be gone by now.
        started = dataclasses.replace(config.model, init_from=None)
        config = dataclasses.replace(config, model=started)
    return _fit(config, dataset, out, show_progress, config=stored, resume=True)


def _update_config(out: Path, content: dict[str, Any]) -> None:
    with run_directory.held(out):
        run_directory.update_config(out, content)


def load_data(path: Path, config: TrainConfig, data_dir: Path | None = None) -> Dataset:
    """Load the data of a run again, perhaps from another folder; see that they are the same."""
    name = config.data
    if is_file_name(name):
        name = str(data_dir / Path(name).name) if data_dir else name
        if not Path(name).is_file():
            raise InputError(
                f"{name}, which {path} was trained on, is not there: put it back, or name the "
                "folder where it is with --data-dir"
            )
    dataset = load(name, data_dir or config.observations.data_dir)
    if not is_own(path, dataset):
        raise InputError(
            f"{dataset.source} is not what {path} was trained on: put the same data back, or train "
            "a new run on these"
        )
    return dataset


def is_own(path: Path, dataset: Dataset) -> bool:
    """Say whether a run was trained on these data, as far as it has noted that."""
    before, now = run_directory.read_config(path)["data"], _facts(dataset)
    return before.get("digests", now["digests"]) == now["digests"]


def check_data(dataset: Dataset, config: TrainConfig) -> None:
    """Refuse values that the model of a configuration cannot learn from."""
    binarize = config.observations.binarize
    if binarize != "none" and config.model.likelihood == "gaussian":
        raise InputError(
            f"binarize is {binarize!r} but likelihood is gaussian, which is of real values and not "
            "of bits: add --binarize none"
        )
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        # Parts of one array are told by their rows in it.
        source = dataset.source if split.rows is not None else f"{name} in {dataset.source}"
        check_values(split, binarize, source)
        if binarize == "none" and config.model.likelihood == "bernoulli":
            check_bits(split, source)


def _tell_of_ranges(dataset: Dataset) -> None:
    """Warn of values that a Gaussian with a learned scale for each feature is not made for."""
    ranges = feature_ranges(dataset.train)
    number, typical, (low, high) = int(np.sum(ranges == 0)), float(np.median(ranges)), _USUAL_RANGES
    if number:
        report(
            f"{number} of {len(ranges)} features of {dataset.source} have one value alone: their "
            "scale will shrink and log p(x) grow for as long as you train; drop them"
        )
    elif not low < typical < high:
        report(
            f"the values of a feature of {dataset.source} range over {typical:.3g}, typically: "
            "networks train best on values of about 1; standardise them"
        )


def planned_updates(path: Path) -> int:
    """Return how many updates a run is to make in all."""
    stored = run_directory.read_config(path)
    config = from_json(stored, path)
    return config.num_epochs * (stored["data"]["num_train"] // config.optimizer.batch_size)


def _facts(dataset: Dataset) -> dict[str, Any]:
    """Return what a run notes of its data."""
    splits = {"train": dataset.train, "test": dataset.test}
    return {
        "name": dataset.name,
        "source": dataset.source,
        "shape": list(dataset.shape),
        **{f"num_{name}": len(split) for name, split in splits.items()},
        "digests": {name: split.digest() for name, split in splits.items()},
    }


def open_config(path: Path) -> TrainConfig:
    """Read the configuration of a run."""
    return from_json(run_directory.read_config(path), path)


def open_run(path: str | Path) -> Run:
    """Load the weights of a run's newest checkpoint that is whole."""
    path = Path(path)
    stored = run_directory.read_config(path)
    config = from_json(stored, path)
    shape = tuple(stored["data"]["shape"])
    weights = _build(config.model, np.zeros(math.prod(shape)), config.run.seed)
    arrays, static = eqx.partition(weights, eqx.is_inexact_array)
    part = "average" if config.optimizer.ema else "params"
    found = checkpoints.restore(path, arrays, report=report, part=part)
    if found is None:
        raise InputError(
            f"{path} has no checkpoint yet: let it train on with `aisle train --resume {path}`"
        )
    update, arrays = found
    return Run(path, config, shape, update, *eqx.combine(arrays, static))


def export_run(run: Run, path: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write a run's weights, with the configuration needed to load them back, and what else."""
    arrays = eqx.filter((run.model, run.proposal), eqx.is_inexact_array)
    named = dict(zip(("model", "proposal"), arrays, strict=True))
    options = dataclasses.asdict(run.config.model)
    # Where the weights started from does not change what they are.
    del options["init_from"]
    weights_file.export(path, named, {**(about or {}), "model": options, "shape": list(run.shape)})


def load_weights(path: str | Path) -> Weights:
    """Load the (model, proposal) of a file that `aisle export` wrote."""
    path = Path(path)
    metadata = weights_file.read_metadata(path)
    try:
        options, mean = ModelOptions(**metadata["model"]), np.zeros(math.prod(metadata["shape"]))
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path} has no configuration of a model ({error}): give a file of `aisle export`"
        ) from None
    weights = _build(options, mean, seed=0)
    arrays, static = eqx.partition(weights, eqx.is_inexact_array)
    loaded = weights_file.load(path, dict(zip(("model", "proposal"), arrays, strict=True)))
    return eqx.combine((loaded["model"], loaded["proposal"]), static)


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Return a configuration as plain values."""

    def plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: str(a) if isinstance(a, Path) else a for name, a in items}

    return dataclasses.asdict(config, dict_factory=plain)


def from_json(stored: dict[str, Any], path: Path) -> TrainConfig:
    """Read the configuration of a run's folder back; what is not there has its default."""
    try:
        return config_of(stored["train"])
    except NOT_A_CONFIG as error:
        if "fit" in stored:
            raise InputError(
                f"{path} is a run of aisle.fit, with a model that only your program has: go on "
                "with it there, by aisle.fit(..., out=..., resume=True)"
            ) from None
        raise InputError(
            f"{path / 'config.json'} is not that of a training run of this version ({error}): "
            "give the folder of one"
        ) from None


# What values that are no configuration lead to.
NOT_A_CONFIG = (AttributeError, KeyError, TypeError)


def config_of(values: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of plain values, or raise one of `NOT_A_CONFIG`."""
    groups = {
        "method": MethodOptions,
        "model": ModelOptions,
        "observations": DataOptions,
        "optimizer": OptimizerOptions,
        "run": RunOptions,
    }
    for name, kind in groups.items():
        _check_types(kind, values[name])
    parts = {name: make(**_paths(values[name])) for name, make in groups.items()}
    return TrainConfig(**{**values, **parts})


def _check_types(group: type, values: dict[str, Any]) -> None:
    """Complain about a value of another type than the default's: the file was edited by hand."""
    for field in dataclasses.fields(group):
        value = values.get(field.name)
        if value is None or field.default is None:
            continue
        kinds = (int, float) if isinstance(field.default, float) else type(field.default)
        if not isinstance(value, kinds):
            raise TypeError(f"{field.name} is {value!r}")


def complete(config: TrainConfig) -> TrainConfig:
    """Write out what the named kernel stands for: a run stays what it is if a preset changes."""
    given = dataclasses.asdict(config.method)
    chosen = presets.complete(presets.TRAINING, config.method.kernel, given, has_scale=True)
    return dataclasses.replace(config, method=dataclasses.replace(config.method, **chosen))


def _absolute(config: TrainConfig) -> TrainConfig:
    """Make paths absolute: a run may be resumed from another folder than it was started from."""
    if is_file_name(config.data):
        config = dataclasses.replace(config, data=str(Path(config.data).expanduser().absolute()))
    model, seen = config.model, config.observations
    return dataclasses.replace(
        config,
        model=dataclasses.replace(model, init_from=_absolute_path(model.init_from)),
        observations=dataclasses.replace(seen, data_dir=_absolute_path(seen.data_dir)),
    )


def _absolute_path(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().absolute()


def _paths(values: dict[str, Any]) -> dict[str, Any]:
    """Turn back into paths what `to_json` made strings of."""
    are_paths = {"init_from", "data_dir"}
    return {k: Path(v) if k in are_paths and v is not None else v for k, v in values.items()}


def first_weights(config: TrainConfig, dataset: Dataset) -> Weights:
    """Build the networks, or take those of another run or of an exported file."""
    weights = _build(config.model, dataset.train.mean(), config.run.seed)
    source = config.model.init_from
    if source is None:
        return weights
    other = _weights_of(source)
    mine, theirs = (jax.tree.map(jnp.shape, each) for each in (weights, other))
    if jax.tree.structure(mine) != jax.tree.structure(theirs) or mine != theirs:
        raise InputError(
            f"--init-from {source} has other networks: use its --model, --num-latents, "
            "--num-hidden, --likelihood and --proposal, and data of the same size"
        )
    return other


def _weights_of(source: Path) -> Weights:
    if source.suffix == weights_file.SUFFIX:
        return load_weights(source)
    run = open_run(source)
    return run.model, run.proposal


def _build(options: ModelOptions, mean: np.ndarray, seed: int) -> Weights:
    check_seed(seed)

    # One compilation instead of one for each array, which would take seconds.
    @eqx.filter_jit
    def weights(key: PRNGKey) -> Weights:
        return build(
            options.model,
            key,
            mean,
            num_latents=options.num_latents,
            num_hidden=options.num_hidden,
            likelihood=options.likelihood,
            proposal=options.proposal,
        )

    return weights(jax.random.key(seed))


def _fit(
    plan: TrainConfig, dataset: Dataset, out: Path, show_progress: bool, **options: Any
) -> Fitted:
    weights = first_weights(plan, dataset)
    if plan.model.likelihood == "gaussian":
        _tell_of_ranges(dataset)
    return fit(
        *weights,
        dataset.train,
        num_epochs=plan.num_epochs,
        held_out=dataset.test,
        binarize=plan.observations.binarize,
        **dataclasses.asdict(plan.method),
        **dataclasses.asdict(plan.optimizer),
        **dataclasses.asdict(plan.run),
        out=out,
        show_progress=show_progress,
        **options,
    )
