"""A training run by options, as the command line starts and resumes it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aisle import processes
from aisle.data import Dataset, Table, as_split, check_support, load
from aisle.data.tables import parse_kinds
from aisle.errors import InputError
from aisle.learning.looks import EarlyStopping, Validation
from aisle.learning.plan import Plan
from aisle.learning.recipe import Recipe
from aisle.runs import checkpoints, folder
from aisle.runs.config import absolute, from_json, to_json
from aisle.runs.fitting import Fitted, run
from aisle.runs.forms import Form, as_json, form_of
from aisle.runs.networks import Weights, build, network_of
from aisle.runs.opening import Run, data_of, facts, load as load_weights, open_run
from aisle.runs.options import TrainConfig
from aisle.runs.recorder import RunFolder
from aisle.runs.timing import updates_within

# Options of what a run writes, which change no result.
_WRITTEN = ("checkpoint_minutes", "keep_checkpoints", "tensorboard")
# What stands for a model that is built by the form of data, before it is.
_TAKES_MISSING = SimpleNamespace(has_missing=True)


def train(
    config: TrainConfig,
    out: Path,
    *,
    hours: float | None = None,
    show_progress: bool = True,
    show_table: Callable[[Table], None] | None = None,
) -> Fitted:
    """Start a new run in the folder `out`, which must not exist or be empty.

    Args:
        config: what to train, and on which data.
        out: folder of the run.
        hours: how long to train, where the configuration has neither epochs nor updates.
        show_progress: whether to show a progress bar.
        show_table: called with a table before the work, for a user to see what its columns are.
    """
    config = absolute(config)
    dataset = dataset_of(config)
    if dataset.table is not None and show_table is not None and processes.is_first():
        show_table(dataset.table)
    return _train(config, dataset, out, {}, show_progress, hours)


def dataset_of(config: TrainConfig) -> Dataset:
    """Load the data of a configuration, as its model sees them."""
    seen = config.observations
    return load(
        config.data,
        seen.data_dir,
        view=config.view(),
        num_valid=seen.num_valid,
        columns=None if seen.columns is None else parse_kinds(seen.columns),
        condition=seen.condition,
        exposure=seen.exposure,
        weights=seen.weights,
    )


def resume(
    out: Path,
    num_epochs: int | None = None,
    num_updates: int | None = None,
    data_dir: Path | None = None,
    *,
    show_progress: bool = True,
) -> Fitted:
    """Resume a run from its newest checkpoint, perhaps to a greater length than planned.

    Args:
        out: its folder.
        num_epochs: None for those that were planned.
        num_updates: likewise.
        data_dir: where its data are now, if they have moved.
        show_progress: whether to show a progress bar.
    """
    stored = folder.read_config(out)
    if "fit" in stored:
        how = folder.how_to_resume(out, stored)
        raise InputError(f"{out} is a run of aisle.fit: resume it by {how}")
    config = from_json(stored, out)
    if stored["format"] == 1:
        raise InputError(
            f"{out} was trained by aisle 0.1: this version opens it but cannot resume it; start a "
            f"new run with --init-from {out}"
        )
    dataset = data_of(out, stored, config, data_dir)
    if num_epochs is not None or num_updates is not None:
        # No longer what fits into some hours.
        stored = {name: value for name, value in stored.items() if name != "hours"}
        config = dataclasses.replace(config, num_epochs=num_epochs, num_updates=num_updates)
    return _train(config, dataset, out, stored, show_progress)


def completed(config: TrainConfig, out: Path, *, hours: float | None = None) -> Run:
    """Train a run, or resume the one in `out` if it was begun with the same options; open it."""
    config = absolute(config)
    data_dir = config.observations.data_dir
    if not (out / "config.json").exists():
        fitted = train(config, out, hours=hours)
    elif _was_begun_with(config, hours, out):
        fitted = resume(out, data_dir=data_dir)
    else:
        raise InputError(f"{out} was begun with other options: give them, or another --out")
    if fitted.is_interrupted:
        raise KeyboardInterrupt("the same command resumes it")
    return open_run(out, data_dir=data_dir)


def _was_begun_with(config: TrainConfig, hours: float | None, out: Path) -> bool:
    """Say whether a run has these options, wherever its data are and whatever it writes."""
    stored = folder.read_config(out)
    before = from_json(stored, out)
    place = before.observations.data_dir
    written = {name: getattr(before.run, name) for name in _WRITTEN}
    config = dataclasses.replace(
        config,
        observations=dataclasses.replace(config.observations, data_dir=place),
        run=dataclasses.replace(config.run, **written),
    )
    if hours is not None:
        # What a run for some hours found out when it began.
        size = min(config.optimizer.batch_size, stored["data"]["num_train"])
        config = dataclasses.replace(
            config,
            num_updates=before.num_updates,
            optimizer=dataclasses.replace(config.optimizer, batch_size=size),
        )
    return to_json(before) == to_json(config) and stored.get("hours") == hours


def first_weights(config: TrainConfig, dataset: Dataset, form: Form | None = None) -> Weights:
    """Build the networks, with the weights of another run or of an exported file if named."""
    networks = build(config.model, dataset, config.run.seed, form)
    source = config.model.init_from
    return networks if source is None else load_weights(source, *networks)


def plan_of(config: TrainConfig, dataset: Dataset, ends: tuple[int, ...] | None = None) -> Plan:
    """Return how a configuration trains on a data set; `ends` are those of a run to resume."""
    options, valid = config.run, dataset.valid
    validation = None
    if valid is not None:
        validation = Validation(valid, options.validate_every, options.keep)
    elif options.patience is not None:
        raise InputError(
            f"is {options.patience} but there are no validation data: leave it out, or set some "
            "aside by --num-valid",
            argument="patience",
        )
    callbacks = () if options.patience is None else (EarlyStopping(options.patience),)
    plan = Plan(
        Recipe(),
        config.num_epochs,
        config.num_updates,
        config.optimizer.batch_size,
        options.seed,
        validation,
        callbacks,
        ends=ends,
    )
    number = len(dataset.train)
    per_epoch = number // min(plan.batch_size, number)
    # A run that is extended has the phases that it was begun with.
    recipe = config.recipe(per_epoch, ends[-1] if ends else plan.length(number))
    return dataclasses.replace(plan, recipe=recipe).fitted_to(number)


def _checked(dataset: Dataset, model: Any = None) -> Dataset:
    splits = {
        name: as_split(split, dataset.source, model=model) for name, split in dataset.splits.items()
    }
    return dataset._replace(**splits)


def _train(
    config: TrainConfig,
    dataset: Dataset,
    out: Path,
    stored: dict[str, Any],
    show_progress: bool,
    hours: float | None = None,
) -> Fitted:
    """Train; `stored` is what a run to resume has in its config.json."""
    options = config.run
    content = {"train": to_json(config), "data": stored.get("data") or facts(dataset)}
    if "hours" in stored or hours is not None:
        content["hours"] = stored.get("hours", hours)
    if stored and checkpoints.latest(out) is not None:
        # Its own weights take the place of those it started from, which may be gone by now.
        started = dataclasses.replace(config.model, init_from=None)
        config = dataclasses.replace(config, model=started)
    place = RunFolder(
        out, options.checkpoint_minutes, options.keep_checkpoints, options.tensorboard
    )
    form = None
    network = network_of(config.model, dataset.table is not None)
    if network in ("mlp", "conv"):
        is_drawn = dataset.train.view.binarize != "none"
        dataset = _checked(dataset, None if is_drawn else _TAKES_MISSING)
        form = form_of(config.model.likelihood, dataset)
        if not stored:
            content["data"]["form"] = as_json(form)
    elif dataset.table is None:
        dataset = _checked(dataset)
    networks = first_weights(config, dataset, form)
    if network == "own" and dataset.table is not None:
        # A function of the user's own may return a model that takes missing values.
        dataset = _checked(dataset, networks[0])
    warmup, asked = config.optimizer.warmup_epochs, config
    if hours is not None and warmup is not None and warmup > 0:
        # Phases are tried before their lengths are known.
        asked = dataclasses.replace(config, num_epochs=2 * warmup)
    plan = plan_of(asked, dataset, tuple(stored.get("ends", ())) or None)
    likelihood = getattr(networks[0], "likelihood", None)
    check_support(likelihood, dataset.test, f"test in {dataset.source}")
    if not stored:
        processes.first_does(lambda: folder.check_new(out))
    if hours is not None:
        assert plan.ends is not None
        start = plan.ends[0] if warmup else None
        number = updates_within(hours, plan, *networks, dataset.train, start)
        # The batch that the data fill, of which the first plan has spoken.
        optimizer = dataclasses.replace(config.optimizer, batch_size=plan.batch_size)
        config = dataclasses.replace(config, num_updates=number, optimizer=optimizer)
        content["train"], plan = to_json(config), plan_of(config, dataset)
    return run(
        plan,
        *networks,
        dataset.train,
        place=place,
        content=content,
        resume=bool(stored),
        show_progress=show_progress,
    )
