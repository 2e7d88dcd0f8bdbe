"""log p(x) against what is known exactly, and against the same chains run by hand."""

import dataclasses
import json
import shutil
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from aisle import Ladder, anneal, anneal_reverse, log_likelihood
from aisle.errors import InputError
from aisle.evaluation import folders, pilot, task, work
from aisle.evaluation.folders import claim
from aisle.evaluation.results import as_json
from aisle.files import locked
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.models.joint import log_joint
from aisle.statistics import summarise
from evaluating import chosen, kernel
from measures import log_mean_exp, z_score

pytestmark = pytest.mark.usefixtures("quick_compilation", "one_device")


# The third latent is not used: its posterior is the prior.
WEIGHT = np.array([[1.0, 0.5, 0], [-0.5, 1.0, 0], [1.5, -0.3, 0], [0.2, 0.8, 0]])
BIAS, SIGMA = np.array([0.2, 0.0, -1.0, 0.5]), 0.6
MODEL = LinearGaussian(
    jnp.asarray(WEIGHT, jnp.float32), jnp.asarray(BIAS, jnp.float32), jnp.log(SIGMA)
)
SEED, NUM_CHAINS, NUM_TEMPERATURES, NUM_LEAPFROG, REFRESH = 7, 3, 4, 2, 0.6
# The root of the number of chains, rounded up.
NUM_REVERSE = 2
NUM_EXAMPLES, NUM_SIMULATED, NUM_SAMPLES = 1000, 400, 20
TARGET = 0.65
GRADIENTS_PER_CHAIN = 1 + (NUM_TEMPERATURES - 1) * NUM_LEAPFROG
# With one move more at the posterior, a tenth of T rounded up.
GRADIENTS_PER_LONGER = GRADIENTS_PER_CHAIN + NUM_LEAPFROG
TILE = 256
KERNEL = kernel(NUM_LEAPFROG, REFRESH, target_accept=TARGET)
SETTINGS = {
    "num_chains": NUM_CHAINS,
    "num_temperatures": NUM_TEMPERATURES,
    "kernel": KERNEL,
    "num_simulated": NUM_SIMULATED,
    "importance_samples": NUM_SAMPLES,
    "seed": SEED,
}


def posterior():
    """Return the gain and the covariance of the exact posterior, in double precision."""
    precision = np.eye(3) + WEIGHT.T @ WEIGHT / SIGMA**2
    covariance = np.linalg.inv(precision)
    return covariance @ WEIGHT.T / SIGMA**2, covariance


def exact_log_p(xs):
    covariance = WEIGHT @ WEIGHT.T + SIGMA**2 * np.eye(4)
    centred = np.asarray(xs, np.float64) - BIAS
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    squares = np.sum(centred @ np.linalg.inv(covariance) * centred, axis=1)
    return -(squares + log_determinant) / 2


class Encoder(eqx.Module):
    """The exact posterior without its correlations, a little wider, and moved by as much."""

    gain: Array
    scale: Array

    def __call__(self, x):
        loc = self.gain @ (x - jnp.asarray(BIAS, x.dtype))
        return DiagonalNormal(loc + self.scale, self.scale)


def make_encoder():
    gain, covariance = posterior()
    scale = 1.2 * np.sqrt(np.diagonal(covariance))
    return Encoder(jnp.asarray(gain, jnp.float32), jnp.asarray(scale, jnp.float32))


ENCODER = make_encoder()


def draw_observations():
    generator = np.random.default_rng(2)
    z, noise = generator.normal(size=(NUM_EXAMPLES, 3)), generator.normal(size=(NUM_EXAMPLES, 4))
    return (z @ WEIGHT.T + BIAS + SIGMA * noise).astype(np.float32)


XS = draw_observations()


def evaluate(**changes):
    return log_likelihood(MODEL, ENCODER, XS, **chosen(**SETTINGS | changes))


class Done(NamedTuple):
    result: object
    folder: object


@pytest.fixture(scope="module")
def done(tmp_path_factory, quick_compilation, one_device):
    """An evaluation with everything, kept in a folder."""
    folder = tmp_path_factory.mktemp("done") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "preferred_examples", lambda *_: TILE)
        return Done(evaluate(out=folder), folder)


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(task, "preferred_examples", lambda *_: TILE)


def read_numbers(folder):
    """Return the numbers of all parts by their name, in the order of the examples."""
    found = work.read_tiles(folder)
    order = np.argsort(np.concatenate([part.indices for part in found]))
    return {
        name: np.concatenate([tile.numbers[name] for tile in found])[order]
        for name in found[0].numbers
        if not name.startswith("mean_")
    }


def round_key(purpose, number=NUM_TEMPERATURES):
    root = jax.random.key(SEED)
    return jax.random.fold_in(jax.random.fold_in(root, number), purpose)


def test_weights_are_unbiased_and_their_logarithms_too_low(done):
    errors = done.result.log_p - exact_log_p(XS)
    assert abs(z_score(np.exp(errors), 1)) < 4
    assert z_score(errors, 0) < -4
    assert errors.mean() > -0.4


def test_the_mean_and_its_error_are_those_of_the_examples(done):
    log_p = done.result.log_p
    error = np.std(log_p, ddof=1) / np.sqrt(NUM_EXAMPLES)
    np.testing.assert_allclose(done.result.estimate, (log_p.mean(), error, NUM_EXAMPLES))
    assert (done.result.mean, done.result.standard_error) == done.result.estimate[:2]
    assert done.result.gap == done.result.bdmc.gap
    np.testing.assert_array_equal(done.result.indices, np.arange(NUM_EXAMPLES))


@pytest.mark.slow
def test_what_was_planned_is_unbiased_and_as_near_as_it_says():
    """The plan is made with other keys, so that the reported weights are unbiased all the same."""
    said = []
    result = evaluate(tolerance=0.05, importance_samples=0, refit=0, report=said.append)
    assert result.is_tolerance_reached
    plan = said[0]
    assert plan.num_temperatures == result.rounds[0].num_temperatures
    errors = result.log_p - exact_log_p(XS)
    assert abs(z_score(np.exp(errors), 1)) < 4
    assert -0.05 < errors.mean() < 0
    # Neither far less nor far more than it takes.
    assert 0.2 < result.rounds[0].bdmc.gap.mean / plan.gap < 1.5


@eqx.filter_jit
def chains_by_hand(ladder, xs):
    """The runs of a round, with its frozen step sizes, keys of the examples' numbers and chains."""

    def chain(x, index, number):
        key = jax.random.fold_in(jax.random.fold_in(round_key(task.FORWARD), index), number)
        return anneal(key, ENCODER(x), log_joint(MODEL, x), ladder)

    each = jax.vmap(jax.vmap(chain, (None, None, 0)), (0, 0, None))
    run = each(xs, jnp.arange(len(xs)), jnp.arange(NUM_CHAINS))
    return run.log_weight, run.info.acceptance


def ladder_of(result):
    """The frozen step sizes of a result; weights need no move at beta = 1."""
    sizes, betas = jnp.asarray(result.step_sizes), jnp.asarray(result.betas)
    return Ladder(betas, sizes, KERNEL.transition, last_move=False)


def test_the_chains_are_those_of_the_frozen_step_sizes(done):
    result = done.result
    log_weights, acceptance = chains_by_hand(ladder_of(result), jnp.asarray(XS))
    np.testing.assert_allclose(log_mean_exp(log_weights, 1), result.log_p, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(acceptance.mean((0, 1)), result.acceptance, rtol=1e-4)
    weights = np.exp(np.asarray(log_weights, float))
    sizes = weights.sum(1) ** 2 / (weights**2).sum(1)
    np.testing.assert_allclose(result.effective_sample_size, sizes, rtol=1e-3)
    assert result.acceptance.shape == (NUM_TEMPERATURES - 1,)
    with np.load(done.folder / "step_sizes-T4.npz") as file:
        np.testing.assert_array_equal(file["step_sizes"], result.step_sizes)
    assert result.num_nonfinite.tolist() == [0] * NUM_EXAMPLES


def test_step_sizes_are_tuned_to_the_target(done):
    np.testing.assert_allclose(done.result.acceptance, TARGET, atol=0.07)


def upper_by_hand(up, down):
    """Minus the log of the mean of 1 / W, one sum at a time."""
    up, down = np.exp(np.float64(up)), np.exp(np.float64(down))
    places = np.arange(up.shape[1])
    inverse = [
        1 / np.hstack([up[:, places != place], down[:, [chain]]]).mean(1)
        for place in places
        for chain in range(down.shape[1])
    ]
    return -np.log(np.mean(inverse, axis=0))


def test_bidirectional_bounds_enclose_the_truth(done):
    """Which is known, as the simulated examples can be drawn again."""

    def simulate(index):
        key = jax.random.fold_in(round_key(task.BDMC), index)
        key_z, key_x, _, _ = jax.random.split(key, 4)
        return MODEL.sample_observation(key_x, MODEL.sample_prior(key_z))

    exact = exact_log_p(jax.vmap(simulate)(jnp.arange(NUM_SIMULATED)))
    numbers = read_numbers(done.folder / "T4" / "bidirectional")
    assert numbers["up"].shape == (NUM_SIMULATED, NUM_CHAINS)
    assert numbers["down"].shape == (NUM_SIMULATED, NUM_REVERSE)
    lower = log_mean_exp(numbers["up"], 1)
    upper = upper_by_hand(numbers["up"], numbers["down"])
    assert abs(z_score(np.exp(lower - exact), 1)) < 4
    assert abs(z_score(np.exp(exact - upper), 1)) < 4
    assert z_score(lower, exact.mean()) < z_score(upper, exact.mean())
    assert z_score(lower - exact, 0) < -4
    assert z_score(upper - exact, 0) > 4
    bdmc, gap = done.result.bdmc, upper - lower
    np.testing.assert_allclose(bdmc.lower, summarise(lower), rtol=1e-5)
    np.testing.assert_allclose(bdmc.upper, summarise(upper), rtol=1e-5)
    np.testing.assert_allclose(bdmc.gap, summarise(gap), rtol=1e-3)
    np.testing.assert_allclose(bdmc.worst_gap, gap.max(), rtol=1e-3)
    # The chains have draws of their own, though those that go down start at the same place.
    for name in ("up", "down"):
        assert len(np.unique(numbers[name])) > 0.95 * numbers[name].size


@eqx.filter_jit
def both_ways_by_hand(ladder, indices):
    """The chains of the certificate: its bounds hold for any kernel, so these are compared."""

    def example(index):
        key = jax.random.fold_in(round_key(task.BDMC), index)
        key_z, key_x, key_up, key_down = jax.random.split(key, 4)
        z = MODEL.sample_prior(key_z)
        x = MODEL.sample_observation(key_x, z)
        q, density = ENCODER(x), log_joint(MODEL, x)

        # A tenth of T moves at the posterior, rounded up, is one.
        long = Ladder(
            jnp.append(ladder.betas, 1.0),
            jnp.append(ladder.step_sizes, ladder.step_sizes[-1]),
            ladder.transition,
            last_move=False,
        )

        def there(number):
            return anneal(jax.random.fold_in(key_up, number), q, density, ladder).log_weight

        def back(number):
            key = jax.random.fold_in(key_down, number)
            return anneal_reverse(key, z, q, density, long).log_weight

        return jax.vmap(there)(jnp.arange(NUM_CHAINS)), jax.vmap(back)(jnp.arange(NUM_REVERSE))

    return jax.vmap(example)(indices)


def test_the_certificate_is_of_the_reported_kernel_in_both_directions(done):
    up, down = both_ways_by_hand(ladder_of(done.result), jnp.arange(NUM_SIMULATED))
    numbers = read_numbers(done.folder / "T4" / "bidirectional")
    np.testing.assert_allclose(numbers["up"], up, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(numbers["down"], down, rtol=1e-4, atol=1e-4)


def test_importance_sampling_bounds_the_same_examples(done):
    numbers = read_numbers(done.folder / f"importance{NUM_SAMPLES}")
    importance, exact = done.result.importance, exact_log_p(XS)
    assert abs(z_score(np.exp(numbers["bound"] - exact), 1)) < 4
    _, covariance = posterior()
    precision = np.linalg.inv(covariance)
    shift = scale = np.float64(ENCODER.scale)
    divergence = (
        np.sum(np.diagonal(precision) * scale**2) + shift @ precision @ shift - 3
        - np.linalg.slogdet(precision * scale**2)[1]
    ) / 2  # fmt: skip
    assert abs(z_score(numbers["elbo"] - exact, -divergence)) < 4
    np.testing.assert_allclose(importance.bound, summarise(numbers["bound"]))
    np.testing.assert_allclose(importance.elbo, summarise(numbers["elbo"]))
    paired = summarise(done.result.log_p - numbers["bound"])
    np.testing.assert_allclose(importance.ais_difference, paired)
    assert paired.standard_error < importance.bound.standard_error
    assert importance.num_samples == NUM_SAMPLES


def test_a_latent_that_only_varies_by_noise_is_not_active(done):
    assert (done.result.importance.active_units, done.result.importance.num_latents) == (2, 3)


def test_every_gradient_is_counted(done):
    tuning = 20 * 64 * (1 + NUM_TEMPERATURES * NUM_LEAPFROG)
    back = NUM_REVERSE * GRADIENTS_PER_LONGER
    simulated = NUM_SIMULATED * (NUM_CHAINS * GRADIENTS_PER_CHAIN + back)
    wanted = tuning + NUM_CHAINS * GRADIENTS_PER_CHAIN * NUM_EXAMPLES + simulated
    assert done.result.decoder_gradients == done.result.rounds[0].decoder_gradients == wanted


def test_the_files_have_the_result(done):
    content = json.loads((done.folder / "result.json").read_text())
    assert content == json.loads(json.dumps(as_json(done.result)))
    assert (content["is_complete"], content["is_tolerance_reached"]) == (True, None)
    wanted = {"num_chains": NUM_CHAINS, "seed": SEED, "precondition": 0.75}
    wanted |= {"kernel": repr(KERNEL), "momentum_refresh": REFRESH, "bdmc_examples": NUM_SIMULATED}
    assert wanted.items() <= content["settings"].items()
    with np.load(done.folder / "examples.npz") as file:
        np.testing.assert_array_equal(file["log_p"], done.result.log_p)
    names = {path.name for path in done.folder.iterdir()}
    assert names == {"settings.json", "result.json", "examples.npz", "examples.csv"} | {
        "T4",
        "step_sizes-T4.npz",
        f"importance{NUM_SAMPLES}",
    }


@pytest.mark.slow
def test_order_tiles_and_devices_do_not_matter(done, monkeypatch):
    """Nor does what else was asked for."""
    order = np.random.default_rng(1).permutation(NUM_EXAMPLES)
    devices = jax.local_devices()[:3]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(task, "preferred_examples", lambda *_: 7)
    settings = SETTINGS | {"num_simulated": 0, "importance_samples": 0, "indices": order}
    found = log_likelihood(MODEL, ENCODER, XS[order], **chosen(**settings))
    np.testing.assert_array_equal(found.indices, order)
    np.testing.assert_allclose(found.log_p, done.result.log_p[order], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.acceptance, done.result.acceptance, rtol=1e-4)
    np.testing.assert_allclose(found.estimate, done.result.estimate, rtol=1e-5)
    np.testing.assert_array_equal(found.step_sizes, done.result.step_sizes)
    assert (found.bdmc, found.importance) == (None, None)


def assert_identical(found, wanted):
    """All but the time that it took."""

    def timeless(result):
        rounds = [round_._replace(seconds=0.0) for round_ in result.rounds]
        return vars(dataclasses.replace(result, rounds=rounds))

    jax.tree.map(np.testing.assert_array_equal, timeless(found), timeless(wanted))


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.npz")}


@pytest.fixture
def copied(done, tmp_path, small_tiles):
    folder = tmp_path / "copy"
    shutil.copytree(done.folder, folder)
    return folder


@pytest.mark.parametrize(
    "missing",
    [
        ["T4/forward/00000768.npz"],
        [
            "step_sizes-T4.npz",
            "T4/bidirectional/00000256.npz",
            "T4/forward",
            f"importance{NUM_SAMPLES}",
            "result.json",
        ],
    ],
    ids=["last tile", "in the certificate"],
)
def test_going_on_gives_the_same_bits(done, copied, missing):
    for name in missing:
        path = copied / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = {p: t for p, t in files_of(copied).items() if p.name != "examples.npz"}
    assert_identical(evaluate(out=copied), done.result)
    after = files_of(copied)
    assert {path: after[path] for path in before} == before
    assert len(after) == len(files_of(done.folder))


def test_a_finished_evaluation_costs_nothing(done, copied, monkeypatch):
    def compiled(*_):
        raise AssertionError("something was computed")

    monkeypatch.setattr(work, "_compile", compiled)
    monkeypatch.setattr(pilot, "tune", compiled)
    assert_identical(evaluate(out=copied), done.result)
    # With less than before, too.
    found = evaluate(out=copied, importance_samples=0, num_simulated=0, max_seconds=9.0)
    np.testing.assert_array_equal(found.log_p, done.result.log_p)
    assert (found.bdmc, found.importance) == (None, None)
    fewer = evaluate(out=copied, importance_samples=0, num_simulated=100)
    lower = log_mean_exp(read_numbers(copied / "T4" / "bidirectional")["up"], 1)[:100]
    np.testing.assert_allclose(fewer.bdmc.lower, summarise(lower), rtol=1e-5)


def test_time_that_is_up_is_said(done, copied):
    shutil.rmtree(copied / "T4" / "forward")
    shutil.rmtree(copied / "T4" / "bidirectional")
    found = evaluate(out=copied, max_seconds=1e-6, importance_samples=0)
    assert not found.is_complete
    assert found.is_tolerance_reached is None
    # A tile of each.
    assert found.bdmc.gap.num_examples == found.estimate.num_examples == TILE
    # From everywhere, as the first ones may be all of a kind.
    assert np.all(np.diff(found.indices) > 0)
    assert 0.4 < found.indices.mean() / NUM_EXAMPLES < 0.6
    np.testing.assert_allclose(found.log_p, done.result.log_p[found.indices], rtol=1e-5)
    spared = done.result.decoder_gradients - found.decoder_gradients
    there, back = NUM_CHAINS * GRADIENTS_PER_CHAIN, NUM_REVERSE * GRADIENTS_PER_LONGER
    assert spared == there * (NUM_EXAMPLES - TILE) + (there + back) * (NUM_SIMULATED - TILE)
    assert not json.loads((copied / "result.json").read_text())["is_complete"]


@pytest.mark.slow
def test_time_that_is_up_also_ends_importance_sampling(done, copied):
    found = evaluate(out=copied, max_seconds=1e-6, importance_samples=4096)
    assert found.is_complete
    # One example on each device.
    number = len(jax.devices())
    assert found.importance.bound.num_examples == number
    assert found.importance.ais_difference.num_examples == number
    (tile,) = work.read_tiles(copied / "importance4096")
    paired = done.result.log_p[tile.indices] - tile.numbers["bound"]
    np.testing.assert_allclose(found.importance.ais_difference.mean, paired.mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_chains": 5}, "other num_chains:"),
        ({"seed": 8, "kernel": kernel(3, REFRESH)}, "other kernel, num_leapfrog, seed, target"),
        ({"x": XS + 1}, "other examples:"),
        ({"x": XS[::-1].copy()}, "other examples:"),
        ({"indices": np.arange(1, NUM_EXAMPLES + 1)}, "other examples:"),
        ({"pilot_x": XS[:3]}, "other pilot_examples:"),
        ({"model": eqx.tree_at(lambda m: m.bias, MODEL, jnp.zeros(4))}, "other weights:"),
        ({"proposal": eqx.tree_at(lambda e: e.scale, ENCODER, jnp.ones(3))}, "other weights:"),
    ],
    ids=["chains", "two things", "values", "order", "indices", "pilot", "model", "encoder"],
)
def test_an_evaluation_goes_on_with_its_own_settings_only(copied, changes, words):
    before = files_of(copied)
    arguments = {"model": MODEL, "proposal": ENCODER, "x": XS} | chosen(**SETTINGS | changes)
    with pytest.raises(InputError, match=words):
        log_likelihood(**arguments, out=copied)
    assert files_of(copied) == before


class Bent(LinearGaussian):
    """A model that differs from another by what is no array."""

    power: int = eqx.field(static=True, default=1)


def test_a_folder_is_of_one_model_to_its_classes_and_static_fields(done, copied):
    weights = (MODEL.weight, MODEL.bias, MODEL.log_sigma)
    for model in (Bent(*weights), Bent(*weights, power=2)):
        with pytest.raises(InputError, match="other classes:"):
            log_likelihood(model, ENCODER, XS, **chosen(**SETTINGS), out=copied)

    def classes(tree):
        return folders.digest_of_classes(tree)

    assert classes(Bent(*weights)) != classes(Bent(*weights, power=2))
    assert classes((MODEL, jnp.tanh)) != classes((MODEL, jnp.sin))
    assert classes((MODEL, 1.0)) == classes((eqx.tree_at(lambda m: m.bias, MODEL, jnp.ones(4)), 2))
    # The same in every process, wherever a function lies in memory.
    assert classes(lambda x: x) == classes(lambda x: x)


def test_settings_that_are_damaged(copied):
    (copied / "settings.json").write_text('{"seed": ')
    with pytest.raises(InputError, match=r"settings\.json is damaged"):
        evaluate(out=copied)


def test_other_peoples_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files: choose another folder"):
        evaluate(out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_one_evaluation_at_a_time_writes_a_folder(copied):
    pytest.importorskip("fcntl")
    words = "is being written by another evaluation: wait for it"
    with locked(copied), pytest.raises(InputError, match=words):
        evaluate(out=copied)


def test_a_file_in_the_way_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/folder"):
        with pytest.raises(InputError, match=r"cannot write"):
            evaluate(out=tmp_path / out)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_process_killed_before_it_wrote_anything(tmp_path):
    (tmp_path / ".settings.json.4242.partial").write_text("{")
    claim(tmp_path, {"seed": 1})
    assert json.loads((tmp_path / "settings.json").read_text()) == {"seed": 1}
