"""`fit`: train any model by any method, in memory or in a run folder."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from aisle import processes
from aisle.data import as_split, remarks
from aisle.errors import InputError
from aisle.learning.history import Fitted, report
from aisle.learning.looks import Callback, Validation
from aisle.learning.plan import Plan
from aisle.learning.preparing import prepare
from aisle.learning.protocol import Method
from aisle.learning.recipe import Recipe, as_recipe
from aisle.learning.recording import Recorder
from aisle.runs import folder
from aisle.runs.recorder import FolderRecorder, RunFolder
from aisle.types import Model, Proposal


def fit(
    model: Model,
    proposal: Proposal,
    x: PyTree,
    context: PyTree | None = None,
    *,
    method: Method | Recipe | None = None,
    optimizer: Any = None,
    num_epochs: int | None = None,
    num_updates: int | None = None,
    batch_size: int = 128,
    seed: int = 0,
    held_out: Any = None,
    callbacks: Iterable[Callback] = (),
    freeze: Callable[[Any, Any], PyTree] | None = None,
    out: str | Path | RunFolder | None = None,
    resume: bool = False,
    show_progress: bool = True,
) -> Fitted:
    """Train a model and its proposal.

    Ctrl-C returns what was trained so far. SIGTERM ends the program, after a checkpoint.

    Example:
        >>> x = np.float32(np.random.default_rng(0).random((200, 6)) < 0.3)
        >>> model, proposal = aisle.one_layer(
        ...     jax.random.key(0), x.mean(0), num_latents=2, num_hidden=8)
        >>> fitted = aisle.fit(model, proposal, x, method=aisle.VAE(), optimizer=optax.adam(1e-3),
        ...                    num_epochs=2, show_progress=False)
        >>> int(fitted.state.update)
        2

    Args:
        model: log_prior, log_likelihood, sample_prior, sample_observation; see `aisle.Model`.
        proposal: an encoder, from x to a distribution q(z|x); see `aisle.Proposal`.
        x: examples along the first axis of an array or of each array of a pytree; dtypes reach
            the model as they are (64-bit ones in 32 bits, unless JAX is set to 64). NaN is a
            missing value for models that know of them, such as `aisle.mlp_model`'s with
            `has_missing=True`. An `aisle.Split` may hold context and weights beside them.
        context: what belongs to the examples and is not modelled, such as an `aisle.Context`, for
            a model and a proposal that take it.
        method: such as `aisle.AIS()`, an object of your own with the same protocol, or an
            `aisle.Recipe` of several phases; by default `aisle.Recipe()`.
        optimizer: any Optax transformation, or `aisle.Adam`, `aisle.Muon`, whose rates span the
            training; not with a recipe, whose phases have their own.
        num_epochs: passes over the data, counted from the very start.
        num_updates: the same in updates. By default 100 epochs, or 5,000 updates if that is more.
        batch_size: examples of an update.
        seed: of the order of the data and of all draws.
        held_out: examples, or `aisle.Validation`, by whose bound the weights are chosen.
        callbacks: functions of (metrics, state), called after each epoch, which end training by
            returning True; see `aisle.Look` and `aisle.EarlyStopping`.
        freeze: which parts are not trained, such as `lambda model, proposal: model.decoder`.
        out: new folder for configuration, metrics and checkpoints; None keeps nothing on disk.
        resume: continue the run in `out`, from its newest checkpoint.
        show_progress: whether to show a progress bar on standard error.
    """
    if resume and out is None:
        raise InputError("resume is True but out is None: give the folder of the run")
    if held_out is not None and not isinstance(held_out, Validation):
        held_out = Validation(held_out)
    recipe = as_recipe(Recipe() if method is None else method, optimizer)
    lengths = (num_epochs, num_updates)
    plan = Plan(recipe, *lengths, batch_size, seed, held_out, tuple(callbacks), freeze)
    split = as_split(x, context=context, model=model)
    place = out if out is None or isinstance(out, RunFolder) else RunFolder(out)
    content = {"fit": _described(plan), "data": {"digest": split.digest()}}
    if resume and place is not None:
        stored = folder.read_config(place.folder)
        _check_same(place.folder, stored, content)
        plan = dataclasses.replace(plan, ends=tuple(stored["ends"]))
    return run(
        plan.fitted_to(len(split)),
        model,
        proposal,
        split,
        place=place,
        content=content,
        resume=resume,
        show_progress=show_progress,
    )


def run(
    plan: Plan,
    model: Model,
    proposal: Proposal,
    x: Any,
    *,
    place: RunFolder | None = None,
    content: Mapping[str, Any] | None = None,
    resume: bool = False,
    show_progress: bool = True,
) -> Fitted:
    """Train by a plan, in the folder `place` if there is one.

    Args:
        plan: as `Plan.fitted_to` returned it.
        model: see `aisle.Model`.
        proposal: see `aisle.Proposal`.
        x: examples.
        place: where the run is written.
        content: what config.json says, beside where phases end.
        resume: whether the folder has a run already.
        show_progress: whether to show a progress bar.
    """
    recorder = Recorder()
    if place is not None and processes.is_first():
        config = {**(content or {}), "ends": list(plan.ends or ())}
        recorder = FolderRecorder(place, config, resume=resume)
    loop, params = prepare(plan, model, proposal, x, recorder, show_progress=show_progress)
    for line in remarks(getattr(model, "likelihood", None), as_split(x, model=model)):
        report(line)
    try:
        fitted = loop.run(params, resume=resume)
    except SystemExit:
        _report_how_to_resume(place, content)
        raise
    if fitted.is_interrupted:
        _report_how_to_resume(place, content)
    return fitted


def _report_how_to_resume(place: RunFolder | None, content: Mapping[str, Any] | None) -> None:
    if place is None or not processes.is_first():
        return
    how = folder.how_to_resume(place.folder, content or {})
    report(f"{place.folder} is resumed by {how}")


def _described(plan: Plan) -> dict[str, Any]:
    """Return what a resumed run must have again; lengths may grow."""
    return {
        "phases": [
            {"method": repr(phase.method), "optimizer": _name(phase.optimizer)}
            for phase in plan.recipe.phases
        ],
        "average": plan.recipe.average,
        "batch_size": plan.batch_size,
        "seed": plan.seed,
        "keep": None if plan.validation is None else plan.validation.keep,
    }


def _name(optimizer: Any) -> str:
    # Functions of Optax have no repr that tells them apart.
    return repr(optimizer) if repr(optimizer).startswith("aisle.") else type(optimizer).__name__


def _check_same(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to resume a run with other settings or data than it was begun with."""
    if "fit" not in stored:
        raise InputError(f"{path} is a run of `aisle train`: resume it by aisle train --resume")
    for name, value in wanted["fit"].items():
        before = stored["fit"].get(name)
        if before != value:
            raise InputError(
                f"is {value!r} but was {before!r} in {path}: give the same to resume it, or "
                "another folder",
                argument=name,
            )
    if stored.get("data") != wanted["data"]:
        raise InputError(f"the data are not those of {path}: give the same to resume it")
