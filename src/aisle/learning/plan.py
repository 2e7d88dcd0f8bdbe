"""How to train: a plan that checks itself, and puts together what the loop needs."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from aisle.compilation import remembered
from aisle.context import given, in_context
from aisle.data import Split, as_split, check_support
from aisle.errors import InputError, check_count, check_seed
from aisle.learning.batches import Feeder
from aisle.learning.looks import Bounder, Callback, EarlyStopping, Validation
from aisle.learning.loop import Loop, Stage, report
from aisle.learning.methods import Method
from aisle.learning.optimizers import as_optimizer
from aisle.learning.recipe import Phase, Recipe
from aisle.learning.recording import Recorder
from aisle.learning.updates import Step
from aisle.models.joint import check_observation, check_parts
from aisle.types import Model, Observation, Proposal

# Where nobody says how long: passes over the data, and the updates that are the least.
_USUAL_EPOCHS, _LEAST_UPDATES = 100, 5_000
# Updates between two looks, at the least: epochs of small data are shorter.
_LEAST_BETWEEN_LOOKS = 100

Freeze = Callable[[Any, Any], PyTree]


@dataclass(frozen=True)
class Plan:
    """How to train, whatever the model and the data.

    Attributes:
        recipe: phases with their methods and optimisers.
        num_epochs: passes over the data.
        num_updates: the same in updates; give one of both, or neither.
        batch_size: examples of an update, at most as many as there are.
        seed: of the order of the data and of all draws.
        validation: held-out examples, or None.
        callbacks: called after each epoch.
        freeze: which parts of (model, proposal) are not trained, or None.
        ends: updates at which phases end, where a run has already fixed that.
    """

    recipe: Recipe
    num_epochs: int | None = None
    num_updates: int | None = None
    batch_size: int = 128
    seed: int = 0
    validation: Validation | None = None
    callbacks: tuple[Callback, ...] = ()
    freeze: Freeze | None = None
    ends: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.num_epochs is not None and self.num_updates is not None:
            raise InputError("give num_epochs or num_updates, and not both")
        for name in ("num_epochs", "num_updates"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("batch_size", self.batch_size)
        check_seed(self.seed)
        # Of Python's kind, as they are written down.
        for name in ("num_epochs", "num_updates", "batch_size", "seed"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))
        for callback in self.callbacks:
            if not callable(callback):
                raise InputError(
                    f"has {callback!r}: give functions of (metrics, state)", argument="callbacks"
                )
            if isinstance(callback, EarlyStopping) and self.validation is None:
                raise InputError(
                    f"has {callback!r} but nothing is held out: give held_out",
                    argument="callbacks",
                )

    def fitted_to(self, num_examples: int) -> "Plan":
        """Return the plan for so many examples: a batch that they fill, ends of all phases."""
        plan = self
        if self.batch_size > num_examples:
            report(
                f"batch_size is {self.batch_size} but there are {num_examples} examples: each "
                "batch has all of them"
            )
            plan = dataclasses.replace(plan, batch_size=num_examples)
        return dataclasses.replace(plan, ends=tuple(plan._ends(num_examples)))

    def _ends(self, num_examples: int) -> list[int]:
        length = self.length(num_examples)
        if self.ends is None:
            return self.recipe.ends(length)
        if self.num_epochs is None and self.num_updates is None:
            return list(self.ends)
        if length < self.ends[-1]:
            raise InputError(
                f"{length:,} updates are asked for but the run was planned for {self.ends[-1]:,}: "
                "a run can be extended, not cut"
            )
        return [*self.ends[:-1], length]

    def length(self, num_examples: int) -> int:
        """Return the updates of the whole training."""
        per_epoch = num_examples // min(self.batch_size, num_examples)
        if self.num_updates is not None:
            return self.num_updates
        if self.num_epochs is not None:
            return self.num_epochs * per_epoch
        usual = max(_USUAL_EPOCHS * per_epoch, _LEAST_UPDATES)
        return math.ceil(usual / per_epoch) * per_epoch


def prepare(
    plan: Plan,
    model: Model,
    proposal: Proposal,
    x: Any,
    recorder: Recorder,
    *,
    show_progress: bool,
) -> tuple[Loop, PyTree]:
    """Return the loop of a plan, and the arrays that it trains; refuse what cannot be trained.

    Args:
        plan: as `Plan.fitted_to` returned it.
        model: see `aisle.Model`.
        proposal: see `aisle.Proposal`.
        x: examples along the first axis.
        recorder: what writes the run down.
        show_progress: whether to show a progress bar.
    """
    assert plan.ends is not None
    split = as_split(x, model=model)
    example = in_context(split.example, split.example_context)
    check_observation(model, example, "an example")
    check_parts(model, proposal, example)
    params, static = trained_arrays(model, proposal, plan.freeze)
    likelihood = getattr(model, "likelihood", None)
    check_support(likelihood, split, "the data")
    root = jax.random.key(plan.seed)
    # Not a key of any update: these are folded from the root by their numbers.
    bounder = None
    if plan.validation is not None:
        held_out = as_split(plan.validation.x, "the held-out data", plan.validation.context, model)
        _check_alike(held_out, split)
        bounder = Bounder(held_out, jax.random.fold_in(root, 2**32 - 1))
        check_support(likelihood, bounder.split, "the held-out data")
    mesh = batch_mesh(plan.batch_size)
    feeder = Feeder(split, plan.batch_size, plan.seed, mesh)
    starts = (0, *plan.ends[:-1])
    stages = [
        _stage(plan, phase, static, split, proposal, bounder, feeder.updates_per_epoch, start, end)
        for phase, start, end in zip(plan.recipe.phases, starts, plan.ends, strict=True)
    ]
    # A share may be too small for a single update.
    stages = [s for s, start in zip(stages, starts, strict=True) if s.end > start]
    loop = Loop(
        stages,
        feeder,
        mesh,
        plan.batch_size,
        root,
        bounder,
        plan.validation is not None and plan.validation.keep == "best",
        plan.callbacks,
        recorder,
        show_progress,
    )
    return loop, params


def trained_arrays(
    model: Model, proposal: Proposal, freeze: Freeze | None = None
) -> tuple[PyTree, PyTree]:
    """Split (model, proposal) into the arrays that are trained and the rest."""
    both = (model, proposal)
    spec = jax.tree.map(eqx.is_inexact_array, both)
    if freeze is not None:
        try:
            spec = eqx.tree_at(
                lambda pair: freeze(*pair),
                spec,
                replace_fn=lambda part: jax.tree.map(lambda _: False, part),
            )
        except (AttributeError, ValueError, TypeError) as error:
            raise InputError(
                f"does not name parts of (model, proposal) ({str(error).splitlines()[0]}): give a "
                "function such as lambda model, proposal: model.decoder",
                argument="freeze",
            ) from None
    params, static = eqx.partition(both, spec)
    if not jax.tree.leaves(params[0]):
        raise InputError(
            f"the model, a {type(model).__name__}, has no arrays of floats to train: make it an "
            "equinox.Module, or another pytree, and do not freeze all of it"
        )
    if not jax.tree.leaves(params[1]) and freeze is None:
        report(
            f"the proposal, a {type(proposal).__name__}, has no arrays of floats and stays as it "
            "is; to train it, make it an equinox.Module, or another pytree"
        )
    return params, static


def batch_mesh(batch_size: int) -> jax.sharding.Mesh:
    """Return a mesh of as many devices as divide the batch evenly."""
    devices = jax.devices()
    if jax.process_count() > 1 and batch_size % len(devices):
        raise InputError(
            f"is {batch_size}: with {jax.process_count()} processes it must be a multiple of the "
            f"{len(devices)} devices that they have together",
            argument="batch_size",
        )
    number = max(n for n in range(1, len(devices) + 1) if batch_size % n == 0)
    return jax.sharding.Mesh(devices[:number], ("batch",))


def _stage(
    plan: Plan,
    phase: Phase,
    static: PyTree,
    split: Split,
    proposal: Proposal,
    bounder: Bounder | None,
    per_epoch: int,
    start: int,
    end: int,
) -> Stage:
    method = _suited(phase.method, given(proposal, split.example_context), split.example)
    optimizer = as_optimizer(phase.optimizer)
    length = (end - start, per_epoch)
    step = Step(
        static,
        method,
        # The same object for another training of this length, which finds its compiled program.
        remembered((optimizer, length), lambda: optimizer.build(*length)),
        split.view,
        plan.recipe.average,
        optimizer.is_shared_out,
    )
    gradients = plan.batch_size * method.num_gradients
    look_every, bound_every = per_epoch * math.ceil(_LEAST_BETWEEN_LOOKS / per_epoch), 1
    if bounder is not None and plan.validation is not None:
        if plan.validation.every is not None:
            look_every, bound_every = per_epoch, plan.validation.every
        else:
            bound_every = bounder.interval(method, gradients * look_every)
    return Stage(step, end, gradients, look_every, bound_every)


def _suited(method: Method, proposal: Proposal, example: Observation) -> Method:
    """Return a method whose kernel suits the proposal, where it has one."""
    if not dataclasses.is_dataclass(method) or not hasattr(method, "kernel"):
        return method
    kernel = method.kernel.suited_to(proposal, example)  # pyright: ignore
    return dataclasses.replace(method, kernel=kernel)


def _check_alike(held_out: Split, split: Split) -> None:
    if (held_out.context is None) != (split.context is None):
        raise InputError(
            "either the held-out examples or those to train on have no context: give it to both, "
            "to those held out by aisle.Validation(x, context=...)"
        )
    shapes = [jax.tree.map(np.shape, one.example) for one in (held_out, split)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"held-out examples have the shape {shapes[0]} and those to train on {shapes[1]}: give "
            "both in the same shape"
        )
