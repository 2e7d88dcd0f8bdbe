"""From a plan, networks and data to the loop that trains them, or to what is wrong with them."""

import dataclasses
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from aisle.compilation import remembered
from aisle.context import given, in_context
from aisle.data import Split, as_split, check_support
from aisle.errors import InputError, first_line
from aisle.learning.batches import Feeder
from aisle.learning.history import report
from aisle.learning.looks import Bounder
from aisle.learning.loop import Loop, Stage
from aisle.learning.optimizers import as_optimizer
from aisle.learning.plan import Freeze, Plan
from aisle.learning.protocol import Method
from aisle.learning.recording import Recorder
from aisle.learning.updates import Step
from aisle.models.joint import check_observation, check_parts
from aisle.models.networks import rounded
from aisle.types import Model, Observation, Proposal

# Updates between two looks, at the least: epochs of small data are shorter.
_LEAST_BETWEEN_LOOKS = 100


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
    split = as_split(x, model=model)
    example = in_context(split.example, split.example_context)
    check_observation(model, example, "an example")
    check_parts(model, proposal, example)
    params, static = trained_arrays(model, proposal, plan.freeze)
    if any(getattr(p.method, "precision", "float32") == "bfloat16" for p in plan.recipe.phases):
        # So that it is refused now, and not where the phase begins.
        eqx.filter_eval_shape(rounded, model)
    likelihood = getattr(model, "likelihood", None)
    check_support(likelihood, split, "the data")
    bounder = None
    if plan.validation is not None:
        held_out = as_split(plan.validation.x, "the held-out data", plan.validation.context, model)
        _check_alike(held_out, split)
        # Not a key of any update: these are folded from the root by their numbers.
        bounder = Bounder(held_out, jax.random.fold_in(jax.random.key(plan.seed), 2**32 - 1))
        check_support(likelihood, bounder.split, "the held-out data")
    feeder = Feeder(split, plan.batch_size, plan.seed, batch_mesh(plan.batch_size))
    stages = _stages(plan, static, split, proposal, bounder, feeder.updates_per_epoch)
    return Loop(plan, stages, feeder, bounder, recorder, show_progress), params


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
                f"does not name parts of (model, proposal) ({first_line(error)}): give a "
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


def _stages(
    plan: Plan,
    static: PyTree,
    split: Split,
    proposal: Proposal,
    bounder: Bounder | None,
    per_epoch: int,
) -> list[Stage]:
    assert plan.ends is not None
    stages, begin = [], 0
    for phase, end in zip(plan.recipe.phases, plan.ends, strict=True):
        method = _suited(phase.method, given(proposal, split.example_context), split.example)
        optimizer = as_optimizer(phase.optimizer)
        length = (end - begin, per_epoch)
        step = Step(
            static,
            method,
            # The same object for another training of this length, which finds its compiled program.
            remembered((optimizer, length), partial(optimizer.build, *length)),
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
        # A share may be too small for a single update.
        if end > begin:
            number = len(stages)
            stages.append(Stage(number, step, begin, end, gradients, look_every, bound_every))
        begin = end
    return stages


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
