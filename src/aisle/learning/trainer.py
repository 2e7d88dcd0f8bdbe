"""Train a model: `fit` puts together what the loop needs, and runs it."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aisle import processes
from aisle.annealing import Kernel, presets, schedules
from aisle.data import Split, check_bits, check_unmasked, check_values, spread
from aisle.errors import InputError, check_rules, check_seed, check_whole, python_numbers
from aisle.learning import checkpoints, estimators, optimizers, run_directory
from aisle.learning.batches import Feeder
from aisle.learning.loop import Loop, Phase, best_params, report
from aisle.learning.observations import observe_rows
from aisle.learning.updates import Recipe, TrainState, init_state, split_arrays
from aisle.learning.validation import make_validation
from aisle.models.joint import check_observation, check_parts
from aisle.models.likelihoods import takes_bits
from aisle.statistics import Mean
from aisle.types import Model, Proposal

# Step sizes of HMC: the paper's first and largest one, and those in units of the proposal's scale.
FIRST_STEP, LARGEST_STEP = 0.1, 0.3
FIRST_SCALED_STEP, LARGEST_SCALED_STEP = 0.5, 2.0

# What a run that is gone on with may have other than before.
_MAY_CHANGE = {
    "num_epochs",
    "held_out",
    "validate_every",
    "out",
    "resume",
    "checkpoint_minutes",
    "keep_checkpoints",
    "tensorboard",
    "show_progress",
}

# The bound on held-out data costs as much as some dozens of updates by a VAE.
VALIDATION_EXAMPLES, VALIDATION_SAMPLES = 512, 64


class Fitted(NamedTuple):
    """What training returns.

    Attributes:
        model: with its trained weights, averaged ones if `ema` asked for them.
        proposal: likewise.
        state: everything that training changed.
        history: the records of metrics.jsonl, as far as they were made by this call.
        signal_number: of the signal that ended training before its time, or None.
    """

    model: Any
    proposal: Any
    state: TrainState
    history: list[dict[str, Any]]
    signal_number: int | None


_WHOLE = (
    *("num_samples", "num_temperatures", "num_leapfrog", "num_epochs", "warmup_epochs"),
    *("batch_size", "validate_every", "keep_checkpoints", "seed"),
)


def fit(
    model: Model,
    proposal: Proposal,
    data: Split | np.ndarray,
    *,
    method: str = "ais",
    num_samples: int = 5,
    num_temperatures: int = 11,
    kernel: str = "tuned",
    num_leapfrog: int | None = None,
    schedule: str | None = None,
    target_accept: float | None = None,
    precondition: float | None = None,
    momentum_refresh: float | None = None,
    jitter: float | None = None,
    phi_objective: str = "elbo",
    num_epochs: int = 100,
    warmup_epochs: int = 0,
    batch_size: int = 128,
    optimizer: str = "adam",
    learning_rate: float | None = None,
    lr_schedule: str = "iwae-study",
    ema: float = 0.0,
    binarize: str = "none",
    held_out: Split | np.ndarray | None = None,
    validate_every: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    config: Mapping[str, object] | None = None,
    resume: bool = False,
    checkpoint_minutes: float = 5.0,
    keep_checkpoints: int = 3,
    tensorboard: bool = False,
    show_progress: bool = True,
) -> Fitted:
    """Train a model and its proposal on an array of examples.

    Args:
        model: log_prior, log_likelihood, sample_prior, sample_observation; see `aisle.types.Model`.
        proposal: an encoder, from x to a distribution q(z|x); see `aisle.types.Proposal`.
        data: examples along the first axis; uint8 stands for value / 255.
        method: vae, iwae, dreg, mh-hmc or ais.
        num_samples: K, samples or chains of an example.
        num_temperatures: T, transitions of a chain.
        kernel: tuned or paper, which say what the next six are where they are None; see
            `aisle.annealing.presets`.
        num_leapfrog: L, leapfrog steps of a transition.
        schedule: of the inverse temperatures: linear, sigmoid, geometric, ramp or immediate.
        target_accept: acceptance that each temperature's step size is adapted towards.
        precondition: power of the proposal's scale that preconditions HMC, 0 for none.
        momentum_refresh: share of new noise in the momentum at each transition, 1 for all.
        jitter: relative half-width of the step size's random spread.
        phi_objective: what trains the proposal of a method with chains: elbo, elbo+wake or wake.
        num_epochs: passes over the data, counted from the very start.
        warmup_epochs: of these, the first ones that train by `vae`.
        batch_size: examples of an update.
        optimizer: adam or muon.
        learning_rate: None for the optimiser's usual one.
        lr_schedule: iwae-study, cosine or constant.
        ema: decay of a running average of the weights, 0 for none.
        binarize: dynamic (new bits at each draw), static or none.
        held_out: examples whose importance-weighted bound is logged.
        validate_every: epochs between two such bounds.
        seed: of the order of the data and of all draws.
        out: new folder for configuration, metrics and checkpoints; None keeps nothing on disk.
        config: what the folder's config.json says; by default the arguments of this call.
        resume: go on with the run in `out`, from its newest checkpoint.
        checkpoint_minutes: between two checkpoints; the last state is always kept.
        keep_checkpoints: how many of them stay on disk.
        tensorboard: also write the metrics for TensorBoard.
        show_progress: whether to show a progress bar on standard error.
    """
    given = python_numbers(locals())
    if resume and out is None:
        raise InputError("resume is True but out is None: give the folder of the run")
    split, shape = as_split(data)
    _check_networks(model, proposal, shape)
    has_scale = presets.has_scale(proposal, jax.ShapeDtypeStruct(shape, jnp.float32))
    given |= presets.complete(presets.TRAINING, kernel, given, has_scale=has_scale)
    _check_arguments(given, len(split))
    _check_examples(model, split, binarize, "the training data")
    recipe = _recipe(given, shape, len(split) // batch_size)
    loop = _loop(given, recipe, split, shape)
    if out is not None:
        own = _own_config(given, split) if config is None else config
        processes.first_does(lambda: _claim(Path(out), own, resume))
    first = init_state(model, proposal, recipe, recipe.kernel.step_sizes)
    state, history, signal_number = loop.run(first, resume)
    if signal_number and config is None and processes.is_first():
        _tell_of_the_rest(state, loop)
    weights = processes.own_copy(best_params(state))
    trained_model, trained_proposal = eqx.combine(weights, recipe.static)
    return Fitted(trained_model, trained_proposal, state, history, signal_number)


def _recipe(given: Mapping[str, Any], shape: tuple[int, ...], updates_per_epoch: int) -> Recipe:
    """Return what an update does."""
    steps = optimizers.optimizer(
        given["optimizer"],
        given["lr_schedule"],
        learning_rate=given["learning_rate"],
        num_epochs=given["num_epochs"],
        updates_per_epoch=updates_per_epoch,
    )
    chains = _chains(given)
    return Recipe(
        split_arrays(given["model"], given["proposal"])[1],
        estimators.named(given["method"], given["phi_objective"]),
        chains,
        steps,
        given["binarize"],
        shape,
        given["target_accept"],
        LARGEST_SCALED_STEP if chains.precondition else LARGEST_STEP,
        given["ema"],
        is_shared_out=given["optimizer"] == "muon",
    )


def _loop(given: Mapping[str, Any], recipe: Recipe, split: Split, shape: tuple[int, ...]) -> Loop:
    """Return what goes over the data again and again; only the first process writes and shows."""
    batch_size, out, is_first = given["batch_size"], given["out"], processes.is_first()
    mesh = batch_mesh(batch_size)
    feeder = Feeder(split, batch_size, given["seed"], mesh)
    return Loop(
        phases=_phases(given, recipe, feeder.updates_per_epoch),
        feeder=feeder,
        mesh=mesh,
        batch_size=batch_size,
        key=jax.random.key(given["seed"]),
        validation=_held_out_bound(given, shape),
        validate_every=given["validate_every"],
        out=Path(out) if out is not None and is_first else None,
        checkpoint_seconds=60 * given["checkpoint_minutes"],
        keep_checkpoints=given["keep_checkpoints"],
        tensorboard=given["tensorboard"],
        show_progress=given["show_progress"] and is_first,
    )


def _own_config(given: Mapping[str, Any], split: Split) -> dict[str, Any]:
    """Return what a run of this function, and not of the command line, notes of itself."""
    plain = {k: v for k, v in given.items() if isinstance(v, int | float | str | None)}
    return {"fit": plain, "data": {"digest": split.digest()}}


def _claim(out: Path, config: Mapping[str, Any], resume: bool) -> None:
    """Make the folder of a new run, or see to it that an old one is gone on with as it was."""
    checkpoints.check_place(out)
    if not resume:
        run_directory.create(out, config)
        return
    stored = run_directory.read_config(out)
    before, now = stored.get("fit", {}), config.get("fit", {})
    for name in sorted(before.keys() & now.keys() - _MAY_CHANGE):
        if before[name] != now[name]:
            raise InputError(
                f"{name} is {now[name]!r} but was {before[name]!r} in {out}: give the same to "
                "resume it, or another out"
            )
    if "fit" in stored and "fit" in config and stored.get("data") != config["data"]:
        raise InputError(f"the data are not those of {out}: give the same to resume it")


def _tell_of_the_rest(state: TrainState, loop: Loop) -> None:
    """Say that training was cut short: the program that called it may go on."""
    how = "" if loop.out is None else "; the same call with resume=True goes on"
    report(
        f"training was stopped by a signal at update {int(state.update):,} of "
        f"{loop.phases[-1].end:,}, and the weights are those so far{how}"
    )


def _chains(given: Mapping[str, Any]) -> Kernel:
    """Return the kernel of the first update."""
    number = given["num_temperatures"]
    first_step = FIRST_SCALED_STEP if given["precondition"] else FIRST_STEP
    return Kernel(
        schedules.named(given["schedule"], number),
        jnp.full(number, first_step, jnp.float32),
        given["num_samples"],
        given["num_leapfrog"],
        given["precondition"],
        given["momentum_refresh"],
        given["jitter"],
    )


def as_split(data: Any) -> tuple[Split, tuple[int, ...]]:
    """Return examples as a split, and the shape in which the model takes one of them.

    A split's examples are flat vectors; those of an array keep the shape they have.
    """
    if isinstance(data, Split):
        return data, (data.num_features,)
    check_unmasked(data, "the data")
    array = np.asarray(data)
    if array.dtype == object:
        raise InputError(
            f"the data are a {type(data).__name__}: give one array, with what belongs to an "
            "example beside its values; a sparse matrix by its toarray()"
        )
    if array.ndim < 2 or not array.size:
        raise InputError(
            f"the data have the shape {array.shape}: give examples along the first axis, each with "
            "at least one value"
        )
    if array.dtype.kind not in "buif":
        raise InputError(f"the data are of type {array.dtype}: give real numbers")
    return Split(array), array.shape[1:]


def _check_networks(model: Any, proposal: Any, shape: tuple[int, ...]) -> None:
    """Refuse what cannot be trained on examples of the shape."""
    example = jax.ShapeDtypeStruct(shape, jnp.float32)
    check_observation(model, example, "an example")
    check_parts(model, proposal, example)
    trained = split_arrays(model, proposal)[0]
    if not jax.tree.leaves(trained[0]):
        raise InputError(
            f"the model, a {type(model).__name__}, has no arrays of floats to train: make it an "
            "equinox.Module, or another pytree"
        )
    if not jax.tree.leaves(trained[1]):
        report(
            f"the proposal, a {type(proposal).__name__}, has no arrays of floats and stays as it "
            "is; to train it, make it an equinox.Module, or another pytree"
        )


def batch_mesh(batch_size: int) -> jax.sharding.Mesh:
    """Return a mesh of as many devices as divide the batch evenly."""
    devices = jax.devices()
    if jax.process_count() > 1 and batch_size % len(devices):
        raise InputError(
            f"batch_size is {batch_size}: with {jax.process_count()} processes it must be a "
            f"multiple of the {len(devices)} devices that they have together"
        )
    number = max(n for n in range(1, len(devices) + 1) if batch_size % n == 0)
    return jax.sharding.Mesh(devices[:number], ("batch",))


def _phases(given: Mapping[str, Any], recipe: Recipe, updates_per_epoch: int) -> list[Phase]:
    """Return the stretches of training: a warm-up by a plain VAE, then the method itself."""
    one_sample = dataclasses.replace(recipe.kernel, num_samples=1)
    warmup = recipe._replace(method=estimators.METHODS["vae"], kernel=one_sample)
    stretches = [(warmup, given["warmup_epochs"]), (recipe, given["num_epochs"])]
    return [
        Phase(r, epochs * updates_per_epoch, given["batch_size"] * r.method.num_gradients(r.kernel))
        for r, epochs in stretches
        if epochs
    ]


def _check_examples(model: Model, split: Split, binarize: str, source: str) -> None:
    check_values(split, binarize, source)
    if binarize == "none" and takes_bits(model):
        check_bits(split, source)


def _held_out_bound(given: Mapping[str, Any], shape: tuple[int, ...]) -> Callable[..., Mean] | None:
    """Return what bounds held-out examples, if there are any."""
    if given["held_out"] is None:
        return None
    split, own_shape = as_split(given["held_out"])
    if own_shape != shape:
        raise InputError(
            f"held-out examples have the shape {own_shape} and those to train on {shape}: give "
            "both in the same shape"
        )
    _check_examples(given["model"], split, given["binarize"], "the held-out data")
    indices = spread(len(split), VALIDATION_EXAMPLES)
    xs = observe_rows(split, indices, given["binarize"])
    return make_validation(xs.reshape(len(indices), *shape), VALIDATION_SAMPLES)


def _check_arguments(given: Mapping[str, Any], num_examples: int) -> None:
    """Refuse numbers that make no sense, each with its rule; comparisons with NaN fail too."""
    check_whole(given, _WHOLE)
    check_seed(given["seed"])
    rate = given["learning_rate"]
    rules = {
        "num_samples": (given["num_samples"] >= 1, "at least 1"),
        "num_temperatures": (given["num_temperatures"] >= 1, "at least 1"),
        "num_leapfrog": (given["num_leapfrog"] >= 1, "at least 1"),
        "target_accept": (0 < given["target_accept"] < 1, "between 0 and 1"),
        "precondition": (0 <= given["precondition"] < math.inf, "finite, and 0 or more"),
        "momentum_refresh": (0 < given["momentum_refresh"] <= 1, "above 0 and at most 1"),
        "jitter": (0 <= given["jitter"] < 1, "at least 0 and below 1"),
        "num_epochs": (given["num_epochs"] >= 1, "at least 1"),
        "warmup_epochs": (0 <= given["warmup_epochs"] <= given["num_epochs"], "0 to num_epochs"),
        "batch_size": (
            1 <= given["batch_size"] <= num_examples,
            f"1 to {num_examples}, the number of examples",
        ),
        "learning_rate": (rate is None or 0 < rate < math.inf, "finite and positive"),
        "ema": (0 <= given["ema"] < 1, "at least 0 and below 1"),
        "validate_every": (given["validate_every"] >= 1, "at least 1"),
        "checkpoint_minutes": (0 <= given["checkpoint_minutes"] < math.inf, "finite, 0 or more"),
        "keep_checkpoints": (given["keep_checkpoints"] >= 1, "at least 1"),
    }
    check_rules(given, rules)
