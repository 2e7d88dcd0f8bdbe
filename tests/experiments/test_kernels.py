import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.annealing import Kernel, schedules
from aisle.annealing.kernel import run_forward
from aisle.annealing.presets import Preset
from aisle.data import spread
from aisle.errors import InputError
from aisle.experiments import kernels
from aisle.experiments.kernels import Config
from aisle.experiments.options import DataOptions, ModelOptions, TrainConfig
from aisle.experiments.training import Run
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.models.joint import log_joint
from commands import contents
from measures import z_score

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_compilation")]

CONFIG = Config(40, 16, (3, 13), 200, 16, seed=5)
# The last two differ in their inverse temperatures only, so that they share their programs.
VARIANTS = {
    "paper": Preset(3, "sigmoid", 0.0, 1.0, 0.0, 0.6),
    "tuned": Preset(1, "linear", 1.0, 0.6, 0.2, 0.8),
    "tuned, adapted schedule": Preset(1, "adapted", 1.0, 0.6, 0.2, 0.8),
}
FILES = ["paper", "tuned", "tuned-adapted-schedule"]

# Orthogonal columns make the posterior's components independent.
MODEL = LinearGaussian(
    jnp.array([[1.0, 0.2], [-0.4, 0.5], [0.0, 0.0]]), jnp.array([0.2, 0.0, -1.0]), jnp.log(0.4)
)


class Encoder(eqx.Module):
    """A normal distribution whose mean is linear in x."""

    weight: jax.Array
    bias: jax.Array
    scale: jax.Array

    def __call__(self, x):
        return DiagonalNormal(self.weight @ x + self.bias, self.scale)


def exact_encoder():
    at_zero = MODEL.mean_field_posterior(jnp.zeros(3))
    columns = jax.vmap(lambda x: MODEL.mean_field_posterior(x).loc - at_zero.loc)(jnp.eye(3))
    return Encoder(columns.T, at_zero.loc, at_zero.scale)


# Wider than every posterior, so that weights have light tails.
WIDE = Encoder(jnp.zeros((2, 3)), jnp.array([0.1, -0.2]), jnp.array([1.5, 1.2]))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of examples drawn from the model."""
    draws = np.random.default_rng(0)
    z = draws.normal(size=(180, 2))
    x = z @ np.asarray(MODEL.weight).T + np.asarray(MODEL.bias) + 0.4 * draws.normal(size=(180, 3))
    path = tmp_path_factory.mktemp("data") / "examples.npz"
    np.savez(path, train=x[:100].astype(np.float32), test=x[100:].astype(np.float32))
    return path


@pytest.fixture
def begin(monkeypatch, tmp_path, data):
    """Begin a comparison of few kernels on a run whose networks are given."""

    def start(out=tmp_path / "out", config=CONFIG, proposal=WIDE, variants=VARIANTS, **changes):
        real = {"model": ModelOptions(likelihood="gaussian")}
        open_ = TrainConfig(str(data), **real, observations=DataOptions(binarize="none"))
        run = Run(tmp_path / "run", open_, (3,), 7, MODEL, proposal)
        run.path.mkdir(exist_ok=True)
        (run.path / "config.json").write_text('{"data": {}}')
        monkeypatch.setattr(kernels, "VARIANTS", variants)
        monkeypatch.setattr(kernels, "open_run", lambda path: run._replace(**changes))
        return kernels.begin(tmp_path / "run", config, out=out, show_progress=False)

    return start


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Where the comparison that nothing happened to is kept, once it is made."""
    return tmp_path_factory.mktemp("finished") / "out"


@pytest.fixture
def study(begin, finished):
    return begin(finished)


@pytest.fixture
def truth(study):
    return kernels.estimate_truth(study)


@pytest.fixture
def rows(study, truth):
    return list(kernels.compare(study, truth))


def stored(study, name):
    with np.load(study.folder / "rows" / f"{name}.npz") as file:
        return dict(file)


def log_marginals(study):
    return np.asarray(jax.vmap(MODEL.log_marginal)(study.x), float)


def same(row, other):
    """Say whether two rows have the same figures, but for the time that they took."""
    plain = [r._replace(gaps=r.gaps.tolist(), seconds=0.0) for r in (row, other)]
    return plain[0] == plain[1]


class StopError(Exception):
    pass


@pytest.mark.parametrize("name", list(kernels.VARIANTS))
def test_the_chains_have_the_kernel_of_the_preset(begin, monkeypatch, name):
    preset, study = kernels.VARIANTS[name], begin()
    jobs, pilots = [], []

    def tune(key, model, proposal, xs, kernel, target):
        pilots.append((xs, float(target)))
        return 2 * kernel.step_sizes

    def ratios(key, model, proposal, xs, kernel):
        np.testing.assert_array_equal(xs, study.pilot_x)
        # Judged by chains that move as they should.
        np.testing.assert_allclose(kernel.step_sizes, 2 * kernels.FIRST_STEP)
        return -jnp.exp(-jnp.arange(float(len(kernel.step_sizes))))

    def walk(job, limits):
        jobs.append(job)
        raise StopError

    for name, stand_in in (("tune_exactly", tune), ("_log_ratios", ratios), ("walk", walk)):
        monkeypatch.setattr(kernels, name, stand_in)
    with pytest.raises(StopError):
        kernels._run(study, "name", preset, 22)
    *_, kernel = jobs[0].context
    assert (kernel.num_samples, kernel.last_move) == (16, True)
    assert kernel.num_leapfrog == preset.num_leapfrog
    assert kernel.precondition == preset.precondition
    assert kernel.refresh == preset.momentum_refresh
    assert kernel.jitter == preset.jitter
    assert len(kernel.betas) == 22 // preset.num_leapfrog + 1
    np.testing.assert_allclose(kernel.step_sizes, 2 * kernels.FIRST_STEP)
    assert len(pilots) == (2 if preset.schedule == "adapted" else 1)
    for xs, target in pilots:
        np.testing.assert_array_equal(xs, study.pilot_x)
        assert target == pytest.approx(preset.target_accept)
    np.testing.assert_array_equal(jobs[0].xs, study.x)


def test_an_exact_encoder_leaves_no_gap(begin):
    """Then every chain's weight is p(x), whatever the kernel."""
    study = begin(config=CONFIG._replace(budgets=(3,)), proposal=exact_encoder())
    truth = kernels.estimate_truth(study)
    np.testing.assert_allclose(truth.log_p, log_marginals(study), atol=1e-4)
    for row, name in zip(kernels.compare(study, truth), FILES, strict=True):
        np.testing.assert_allclose(row.gaps, 0, atol=1e-4)
        assert abs(row.gap.mean) < 1e-5
        each = stored(study, f"{name}-3")["log_weight"]
        np.testing.assert_allclose(each, np.tile(truth.log_p[:, None], 16), atol=1e-4)


def test_each_budget_has_every_kernel_with_its_cost(study, rows):
    assert [(r.variant, r.budget) for r in rows] == [(v, b) for b in (3, 13) for v in VARIANTS]
    assert [r.num_temperatures for r in rows] == [1, 3, 3, 4, 13, 13]
    assert [r.gradients for r in rows] == [4, 4, 4, 13, 14, 14]
    for row in rows:
        assert row.preset == VARIANTS[row.variant]
        assert row.gradients == row.num_temperatures * row.preset.num_leapfrog + 1
        assert row.num_nonfinite == 0
        assert row.seconds > 0
    # A move costs its L gradients even where the budget has fewer.
    assert len(stored(study, "paper-3")["mean_acceptance"]) == 1


def test_a_budget_below_one_transition_buys_one(begin):
    study = begin(config=CONFIG._replace(budgets=(2,)), variants={"paper": VARIANTS["paper"]})
    (row,) = kernels.compare(study, kernels.estimate_truth(study))
    assert (row.num_temperatures, row.gradients) == (1, 4)


def test_the_gap_is_log_p_less_the_mean_log_weight(study, rows):
    with np.load(study.folder / "truth" / "examples.npz") as file:
        indices, log_p = file["index"], file["log_p"]
    np.testing.assert_array_equal(indices, np.arange(40) * 2)
    for row, name in zip(rows, [f"{n}-{b}" for b in (3, 13) for n in FILES], strict=True):
        kept = stored(study, name)
        np.testing.assert_array_equal(kept["indices"], indices)
        assert kept["log_weight"].shape == (40, 16)
        means = kept["log_weight"].astype(float).mean(1)
        np.testing.assert_allclose(row.gaps, log_p - means, rtol=1e-12)
        assert row.log_weight.mean == pytest.approx(means.mean(), rel=1e-12)
        assert row.gap.mean == pytest.approx((log_p - means).mean(), rel=1e-12)
        error = (log_p - means).std(ddof=1) / 40**0.5
        assert row.gap.standard_error == pytest.approx(error, rel=1e-12)
        assert row.gap.num_examples == 40


def test_the_examples_are_those_of_an_evaluation(study, data):
    with np.load(data) as file:
        np.testing.assert_array_equal(study.x, file["test"][np.arange(40) * 2])
        np.testing.assert_array_equal(study.pilot_x, file["train"][np.arange(64) * 100 // 64])


def test_the_truth_is_near_and_certified(study, truth):
    errors = truth.log_p - log_marginals(study)
    assert abs(z_score(errors, 0)) < 4
    assert np.abs(errors).max() < 0.5
    assert truth.bdmc.gap.num_examples == 100
    assert abs(truth.bdmc.gap.mean) < 0.1
    wanted = {
        "num_chains": 16,
        "num_temperatures": 200,
        "num_leapfrog": 4,
        "schedule": "sigmoid",
        "precondition": 0.75,
        "momentum_refresh": 0.6,
        "target_accept": 0.8,
        "seed": 5,
    }
    assert {name: truth.settings[name] for name in wanted} == wanted


def test_weights_average_to_p_of_x(study, rows):
    """As they do for any kernel that was frozen before its run."""
    for name in [f"{n}-{b}" for b in (3, 13) for n in FILES]:
        log_weight = stored(study, name)["log_weight"]
        weights = np.exp(log_weight - log_marginals(study)[:, None])
        assert abs(z_score(weights.mean(1), 1)) < 4


def test_more_temperatures_are_tighter(rows):
    for small, large in zip(rows[:3], rows[3:], strict=True):
        assert z_score(small.gaps - large.gaps, 0) > 4
        assert large.gap.mean > 0


def test_step_sizes_are_tuned_to_the_target(study, rows):
    for row in rows:
        assert row.acceptance == pytest.approx(row.preset.target_accept, abs=0.06)
    accepted = stored(study, "tuned-13")["mean_acceptance"]
    np.testing.assert_allclose(accepted, 0.8, atol=0.1)
    # Those of paper have no preconditioner, and are for its own temperatures.
    sizes = stored(study, "paper-13")["step_sizes"]
    assert sizes.shape == (4,)
    assert np.ptp(sizes) > 0.05


def test_temperatures_are_those_of_the_schedule(study, rows):
    np.testing.assert_array_equal(stored(study, "tuned-13")["betas"], schedules.linear(13))
    np.testing.assert_array_equal(stored(study, "paper-13")["betas"], schedules.sigmoid(4))


def test_adapted_temperatures_are_placed_by_a_pilot(study, rows):
    """They agree with those that very many other chains would place."""
    kept = stored(study, "tuned-adapted-schedule-13")
    betas, linear = kept["betas"], schedules.linear(13)
    assert (betas[0], betas[-1]) == (0, 1)
    assert np.all(np.diff(betas) > 0)
    assert np.abs(betas - linear).max() > 0.2

    sizes = jnp.asarray(stored(study, "tuned-13")["step_sizes"])
    kernel = Kernel(linear, sizes, num_leapfrog=1, precondition=1.0, refresh=0.6, jitter=0.2)

    @jax.jit
    @jax.vmap
    def log_ratios(key, x):
        return run_forward(key, WIDE(x), log_joint(MODEL, x), kernel).info.log_ratio

    xs = jnp.tile(study.pilot_x, (100, 1))
    found = log_ratios(jax.random.split(jax.random.key(99), len(xs)), xs).mean(0)
    np.testing.assert_allclose(betas, schedules.adapted(linear, found, 13), atol=0.05)
    accepted = stored(study, "tuned-adapted-schedule-13")["mean_acceptance"]
    np.testing.assert_allclose(accepted, 0.8, atol=0.1)


def test_no_two_purposes_share_a_key(begin, truth, monkeypatch):
    used = {}

    def spy(name):
        function = getattr(kernels, name)

        def spied(first, *rest):
            key = first.key if name == "walk" else first
            used.setdefault(name, set()).add(tuple(np.asarray(jax.random.key_data(key)).tolist()))
            return function(first, *rest)

        monkeypatch.setattr(kernels, name, spied)

    for name in ("walk", "tune_exactly", "_log_ratios"):
        spy(name)
    study = begin(config=CONFIG._replace(budgets=(3,)))
    list(kernels.compare(study, truth))
    # All kernels share them.
    assert [len(keys) for keys in used.values()] == [1, 1, 1]
    rounds = [jax.random.fold_in(jax.random.key(5), number) for number in range(4)]
    others = {
        tuple(np.asarray(jax.random.key_data(jax.random.fold_in(key, number))).tolist())
        for key in (jax.random.key(5), *rounds)
        for number in range(4)
    }
    assert len(set.union(others, *used.values())) == len(others) + 3


def test_kernels_start_at_the_same_points(study, rows):
    """With one step from 0 to 1 the weight is that of the start."""
    paper = stored(study, "paper-3")["log_weight"]
    key = study.key(kernels._CHAINS)

    @jax.jit
    def start(index, chain, x):
        own = jax.random.fold_in(jax.random.fold_in(key, index), chain)
        kernel = Kernel(schedules.linear(1), jnp.ones(1), num_leapfrog=1)
        return run_forward(own, WIDE(x), log_joint(MODEL, x), kernel).log_weight

    found = [[start(2 * i, c, study.x[i]) for c in (0, 15)] for i in (0, 39)]
    np.testing.assert_allclose(paper[np.ix_([0, 39], [0, 15])], found, atol=1e-4)


def test_a_finished_comparison_is_read_again(begin, finished, rows, monkeypatch):
    before = contents(finished)

    def never(*_, **__):
        raise AssertionError("computed again")

    for name in ("_run", "tune_exactly", "walk"):
        monkeypatch.setattr(kernels, name, never)
    monkeypatch.setattr("aisle.evaluation.work._compile", never)
    study = begin(finished)
    again = list(kernels.compare(study, kernels.estimate_truth(study)))
    assert [r.seconds for r in again] == [r.seconds for r in rows]
    assert all(same(*pair) for pair in zip(again, rows, strict=True))
    assert contents(finished).keys() == before.keys()


def test_an_interrupted_comparison_goes_on(begin, tmp_path, rows, monkeypatch):
    walk, calls = kernels.walk, []

    def interrupted(job, *rest):
        calls.append(job.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return walk(job, *rest)

    monkeypatch.setattr(kernels, "walk", interrupted)
    study = begin()
    with pytest.raises(KeyboardInterrupt):
        list(kernels.compare(study, kernels.estimate_truth(study)))
    folder = study.folder / "rows"
    assert sorted(p.name for p in folder.iterdir()) == ["paper-3.npz", "tuned-3.npz"]
    # What a kill leaves: half of a file, under another name or, after a loss of power, its own.
    (folder / ".x.npz.1.partial").write_bytes(b"half")
    (folder / "tuned-3.npz").write_bytes((folder / "tuned-3.npz").read_bytes()[:500])
    # The order of budgets does not matter, nor that one is given twice.
    study = begin(config=CONFIG._replace(budgets=(13, 3, 13)))
    again = list(kernels.compare(study, kernels.estimate_truth(study)))
    assert calls[3] == "tuned, 3"
    assert len(calls) == 3 + len(rows) - 1
    assert all(same(*pair) for pair in zip(again, rows, strict=True))
    assert sorted(p.suffix for p in folder.iterdir()) == [".npz"] * len(rows)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": CONFIG._replace(chains=4)}, "other chains: choose"),
        ({"config": CONFIG._replace(seed=6)}, "other seed: choose"),
        ({"config": CONFIG._replace(num_examples=10)}, "other num_examples: choose"),
        ({"config": CONFIG._replace(budgets=(3,))}, "other budgets: choose"),
        ({"config": CONFIG._replace(truth_chains=9)}, "other truth_chains: choose"),
        ({"config": CONFIG._replace(truth_temperatures=201)}, "other truth_temperatures: choose"),
        ({"update": 8}, "other update: choose"),
        ({"variants": {**VARIANTS, "tuned": VARIANTS["paper"]}}, "other variants: choose"),
    ],
)
def test_other_settings_need_another_folder(begin, finished, rows, changes, words):
    before = contents(finished)
    with pytest.raises(InputError, match=f"{words} another --out"):
        begin(finished, **changes)
    assert contents(finished) == before


def test_other_weights_need_another_folder(begin, finished, rows):
    before = contents(finished)
    other = eqx.tree_at(lambda m: m.bias, MODEL, MODEL.bias + 1)
    with pytest.raises(InputError, match="other weights: choose another --out"):
        kernels.estimate_truth(begin(finished, model=other))
    assert contents(finished) == before


def test_the_folder_of_a_run_is_the_default(begin, tmp_path):
    study = begin(None)
    assert study.folder == tmp_path / "run" / "kernels"
    settings = json.loads((study.folder / "settings.json").read_text())
    assert settings["chains"] == 16
    assert settings["variants"]["paper"] == list(VARIANTS["paper"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chains": 0}, "chains is 0: it must be at least 1"),
        ({"budgets": ()}, r"budgets is \(\): it must be one or more numbers, each at least 1"),
        ({"budgets": (22, 0)}, r"budgets is \(22, 0\): it must be one or more"),
        ({"num_examples": 0}, "num_examples is 0: it must be at least 1"),
        ({"truth_temperatures": 1}, "truth_temperatures is 1: it must be at least 2"),
        ({"truth_chains": 0}, "truth_chains is 0: it must be at least 1"),
        ({"seed": -1}, "seed is -1: it must be from 0 to 4294967295"),
    ],
)
def test_mistakes_are_told_before_the_work(begin, tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        begin(config=CONFIG._replace(**changes))
    assert not (tmp_path / "out").exists()


def test_weights_and_data_that_cannot_be_used(begin, tmp_path):
    broken = eqx.tree_at(lambda m: m.bias, MODEL, MODEL.bias.at[1].set(jnp.nan))
    with pytest.raises(InputError, match="at update 7 are not all finite"):
        begin(model=broken)
    with pytest.raises(InputError, match="give data of that shape"):
        begin(shape=(4,))
    assert not (tmp_path / "out").exists()
    assert spread(80, 40).tolist() == (np.arange(40) * 2).tolist()
