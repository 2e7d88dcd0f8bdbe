import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.errors import InputError
from aisle.models import DiagonalNormal, LinearGaussian
from commands import contents
from measures import z_score
from paper.core import chains
from paper.core.chains import Kernel, Preset, anneal, log_joint, schedules
from paper.core.trained import Subject
from paper.kernels import study as kernels
from paper.kernels.study import Config

pytestmark = pytest.mark.usefixtures("quick_compilation")

CONFIG = Config(40, 16, (3, 13), 200, 16, seed=5)
# The last two differ in their inverse temperatures only, so that they share their programs.
VARIANTS = {
    "paper": Preset(3, "sigmoid", 0.0, 1.0, 0.6),
    "tuned": Preset(1, "linear", 1.0, 0.6, 0.8),
    "tuned, adapted schedule": Preset(1, "adapted", 1.0, 0.6, 0.8),
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


def simulated(number, seed):
    draws = np.random.default_rng(seed)
    z, noise = draws.normal(size=(number, 2)), draws.normal(size=(number, 3))
    x = z @ np.asarray(MODEL.weight).T + np.asarray(MODEL.bias) + 0.4 * noise
    return jnp.asarray(x, jnp.float32)


@pytest.fixture
def begin(monkeypatch, tmp_path):
    """Begin a comparison of few kernels on a run whose networks are given."""

    def start(out=tmp_path / "out", config=CONFIG, proposal=WIDE, variants=VARIANTS, **changes):
        def open_subject(path, num_examples, data_dir):
            xs, pilot = simulated(num_examples, 0), simulated(64, 1)
            indices = 2 * np.arange(num_examples)
            return Subject(path, 7, MODEL, proposal, "", indices, xs, pilot)._replace(**changes)

        monkeypatch.setattr(kernels, "VARIANTS", variants)
        monkeypatch.setattr(kernels, "open_subject", open_subject)
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
def results(study, truth):
    return list(kernels.compare(study, truth.log_p))


def stored(study, name):
    with np.load(study.folder / "rows" / f"{name}.npz") as file:
        return dict(file)


def log_marginals(study):
    return np.asarray(jax.vmap(MODEL.log_marginal)(study.subject.x), float)


def same(result, other):
    """Say whether two results have the same numbers, but for the time that they took."""
    plain = [r._replace(gaps=r.gaps.tolist(), seconds=0.0) for r in (result, other)]
    return plain[0] == plain[1]


class StopError(Exception):
    pass


# Every schedule, and every option in two values.
SOME = ("paper", "tuned", "tuned, L=4", "tuned, ramp schedule", "tuned, adapted schedule")


@pytest.mark.parametrize("name", SOME)
def test_the_chains_have_the_kernel_of_the_preset(begin, monkeypatch, name):
    preset, study = kernels.VARIANTS[name], begin()
    subject, asked, pilots = study.subject, [], []

    def tune(key, model, proposal, xs, kernel, target):
        pilots.append((xs, target))
        return dataclasses.replace(kernel, step_sizes=2 * kernel.step_sizes)

    def ratios(key, model, proposal, xs, kernel):
        np.testing.assert_array_equal(xs, subject.pilot_x)
        # Judged by chains that move as they should.
        np.testing.assert_allclose(kernel.step_sizes, 2 * chains.FIRST_STEP)
        return -jnp.exp(-jnp.arange(float(len(kernel.step_sizes))))

    def run(*given, **options):
        asked.append(given)
        raise StopError

    stand_ins = {"tune_steps": tune, "mean_log_ratios": ratios, "anneal_examples": run}
    for function, stand_in in stand_ins.items():
        monkeypatch.setattr(chains, function, stand_in)
    with pytest.raises(StopError):
        kernels._run_chains(study, "name", preset, 22)
    [(_, networks, kernel, _, xs, indices)] = asked
    assert networks == (subject.model, subject.proposal)
    assert (kernel.num_samples, kernel.last_move) == (16, True)
    assert kernel.num_leapfrog == preset.num_leapfrog
    assert kernel.precondition == preset.precondition
    assert kernel.refresh == preset.momentum_refresh
    assert len(kernel.betas) == 22 // preset.num_leapfrog + 1
    np.testing.assert_allclose(kernel.step_sizes, 2 * chains.FIRST_STEP)
    assert len(pilots) == (2 if preset.schedule == "adapted" else 1)
    for pilot_xs, target in pilots:
        np.testing.assert_array_equal(pilot_xs, subject.pilot_x)
        assert target == preset.target_accept
    np.testing.assert_array_equal(xs, subject.x)
    np.testing.assert_array_equal(indices, subject.indices)


@pytest.mark.slow
def test_an_exact_encoder_leaves_no_gap(begin):
    """Then every chain's weight is p(x), whatever the kernel."""
    one = {"tuned": VARIANTS["tuned"]}
    study = begin(config=CONFIG._replace(steps=(3,)), proposal=exact_encoder(), variants=one)
    log_p = log_marginals(study)
    (result,) = kernels.compare(study, log_p)
    np.testing.assert_allclose(result.gaps, 0, atol=1e-4)
    assert abs(result.gap.mean) < 1e-5
    each = stored(study, "tuned-3")["log_weight"]
    np.testing.assert_allclose(each, np.tile(log_p[:, None], 16), atol=1e-4)


@pytest.mark.slow
def test_each_number_of_steps_has_every_kernel_with_its_cost(study, results):
    assert [(r.variant, r.steps) for r in results] == [(v, b) for b in (3, 13) for v in VARIANTS]
    assert [r.num_temperatures for r in results] == [1, 3, 3, 4, 13, 13]
    assert [r.gradients for r in results] == [4, 4, 4, 13, 14, 14]
    for result in results:
        assert result.preset == VARIANTS[result.variant]
        assert result.gradients == result.num_temperatures * result.preset.num_leapfrog + 1
        assert result.num_nonfinite == 0
        assert result.seconds > 0
    # A move costs its L gradients even where fewer steps are asked for.
    assert len(stored(study, "paper-3")["mean_acceptance"]) == 1


def test_fewer_steps_than_one_transition_buy_one(begin, monkeypatch):
    monkeypatch.setattr(chains, "tune_steps", lambda *given: given[4])
    monkeypatch.setattr(chains, "anneal_examples", lambda *_, **__: {})
    found = kernels._run_chains(begin(), "paper", VARIANTS["paper"], 2)
    assert (len(found["step_sizes"]), found["gradients"]) == (1, 4)


@pytest.mark.slow
def test_the_gap_is_log_p_less_the_mean_log_weight(study, results):
    with np.load(study.folder / "truth" / "examples.npz") as file:
        indices, log_p = file["index"], file["log_p"]
    np.testing.assert_array_equal(indices, np.arange(40) * 2)
    for result, name in zip(results, [f"{n}-{b}" for b in (3, 13) for n in FILES], strict=True):
        kept = stored(study, name)
        np.testing.assert_array_equal(kept["indices"], indices)
        assert kept["log_weight"].shape == (40, 16)
        means = kept["log_weight"].astype(float).mean(1)
        np.testing.assert_allclose(result.gaps, log_p - means, rtol=1e-12)
        assert result.log_weight.mean == pytest.approx(means.mean(), rel=1e-12)
        assert result.gap.mean == pytest.approx((log_p - means).mean(), rel=1e-12)
        error = (log_p - means).std(ddof=1) / 40**0.5
        assert result.gap.standard_error == pytest.approx(error, rel=1e-12)
        assert result.gap.num_examples == 40


@pytest.mark.slow
def test_floors_are_those_of_independent_draws_at_each_temperature(begin):
    """Their mean log-weight is known for normal distributions along the path."""
    study = begin()
    x, log_p = study.subject.x, log_marginals(study)
    q, posterior = jax.vmap(WIDE)(x), jax.vmap(MODEL.mean_field_posterior)(x)
    for floor in kernels.floors(study, log_p):
        betas = np.asarray(schedules.linear(floor.steps))
        gaps = np.zeros(len(x))
        for beta, step in zip(betas, np.diff(betas), strict=False):
            precision = (1 - beta) / q.scale**2 + beta / posterior.scale**2
            mean = (1 - beta) * q.loc / q.scale**2 + beta * posterior.loc / posterior.scale**2
            # Of log q and of the posterior's log-density, each as at its own mean.
            falls = [
                jnp.log(d.scale)
                + ((mean / precision - d.loc) ** 2 + 1 / precision) / d.scale**2 / 2
                for d in (q, posterior)
            ]
            gaps += step * np.sum(falls[1] - falls[0], axis=1)
        assert abs(z_score(floor.gaps - gaps, 0)) < 4
        assert floor.gap.standard_error < 0.3 * floor.gap.mean
    assert floor.num_temperatures == 13 * kernels.MANY_MOVES == floor.gradients - 1
    assert stored(study, "tuned-40-moves-3")["betas"].tolist() == [0.0] + [
        pytest.approx(beta) for beta in np.repeat([1 / 3, 2 / 3, 1], 40)
    ]


@pytest.mark.slow
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
        "kernel": repr(aisle.Kernel.tuned(is_long=True)),
        "precondition": 0.75,
        "momentum_refresh": 0.6,
        "target_accept": 0.8,
        "seed": 5,
    }
    assert {name: truth.settings[name] for name in wanted} == wanted


@pytest.mark.slow
def test_weights_average_to_p_of_x(study, results):
    """As they do for any kernel that was frozen before its run."""
    for name in [f"{n}-{b}" for b in (3, 13) for n in FILES]:
        log_weight = stored(study, name)["log_weight"]
        weights = np.exp(log_weight - log_marginals(study)[:, None])
        assert abs(z_score(weights.mean(1), 1)) < 4


@pytest.mark.slow
def test_more_temperatures_are_tighter(results):
    for small, large in zip(results[:3], results[3:], strict=True):
        assert z_score(small.gaps - large.gaps, 0) > 4
        assert large.gap.mean > 0


@pytest.mark.slow
def test_step_sizes_are_tuned_to_the_target(study, results):
    for result in results:
        assert result.acceptance == pytest.approx(result.preset.target_accept, abs=0.06)
    accepted = stored(study, "tuned-13")["mean_acceptance"]
    np.testing.assert_allclose(accepted, 0.8, atol=0.1)
    # Those of paper have no preconditioner, and are for its own temperatures.
    sizes = stored(study, "paper-13")["step_sizes"]
    assert sizes.shape == (4,)
    assert np.ptp(sizes) > 0.05


@pytest.mark.slow
def test_temperatures_are_those_of_the_schedule(study, results):
    np.testing.assert_array_equal(stored(study, "tuned-13")["betas"], schedules.linear(13))
    np.testing.assert_array_equal(stored(study, "paper-13")["betas"], schedules.sigmoid(4))


@pytest.mark.slow
def test_adapted_temperatures_are_placed_by_a_pilot(study, results):
    """They agree with those that very many other chains would place."""
    kept = stored(study, "tuned-adapted-schedule-13")
    betas, linear = kept["betas"], schedules.linear(13)
    assert (betas[0], betas[-1]) == (0, 1)
    assert np.all(np.diff(betas) > 0)
    assert np.abs(betas - linear).max() > 0.2

    sizes = jnp.asarray(stored(study, "tuned-13")["step_sizes"])
    kernel = Kernel(linear, sizes, num_leapfrog=1, precondition=1.0, refresh=0.6)

    @jax.jit
    @jax.vmap
    def log_ratios(key, x):
        return anneal(key, WIDE(x), log_joint(MODEL, x), kernel).info.log_ratio

    xs = jnp.tile(study.subject.pilot_x, (100, 1))
    found = log_ratios(jax.random.split(jax.random.key(99), len(xs)), xs).mean(0)
    np.testing.assert_allclose(betas, schedules.placed(linear, found)(13), atol=0.05)
    accepted = stored(study, "tuned-adapted-schedule-13")["mean_acceptance"]
    np.testing.assert_allclose(accepted, 0.8, atol=0.1)


def test_no_two_purposes_share_a_key(begin, monkeypatch):
    used = {}

    def data_of(key):
        return tuple(np.asarray(jax.random.key_data(key)).tolist())

    def spy(name, answer):
        def spied(*given, **_):
            key = given[3] if name == "anneal_examples" else given[0]
            used.setdefault(name, set()).add(data_of(key))
            return answer(*given)

        monkeypatch.setattr(chains, name, spied)

    spy("tune_steps", lambda *given: given[4])
    spy("mean_log_ratios", lambda *given: -jnp.ones(len(given[4].step_sizes)))
    spy("anneal_examples", lambda *_: {})
    study = begin()
    for name, preset in VARIANTS.items():
        kernels._run_chains(study, name, preset, 3)
    # All kernels share them.
    assert [len(keys) for keys in used.values()] == [1, 1, 1]
    rounds = [jax.random.fold_in(jax.random.key(5), number) for number in range(4)]
    others = {
        data_of(jax.random.fold_in(key, number))
        for key in (jax.random.key(5), *rounds)
        for number in range(4)
    }
    assert len(set.union(others, *used.values())) == len(others) + 3


@pytest.mark.slow
def test_kernels_start_at_the_same_points(study, results):
    """With one step from 0 to 1 the weight is that of the start."""
    paper = stored(study, "paper-3")["log_weight"]
    key = study.key(kernels._CHAINS)

    @jax.jit
    def start(index, chain, x):
        own = jax.random.fold_in(jax.random.fold_in(key, index), chain)
        kernel = Kernel(schedules.linear(1), jnp.ones(1), num_leapfrog=1)
        return anneal(own, WIDE(x), log_joint(MODEL, x), kernel).log_weight

    found = [[start(2 * i, c, study.subject.x[i]) for c in (0, 15)] for i in (0, 39)]
    np.testing.assert_allclose(paper[np.ix_([0, 39], [0, 15])], found, atol=1e-4)


@pytest.mark.slow
def test_a_finished_comparison_is_read_again(begin, finished, results, monkeypatch):
    before = contents(finished)

    def never(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(kernels, "_run_chains", never)
    monkeypatch.setattr("aisle.evaluation.work._compile", never)
    study = begin(finished)
    again = list(kernels.compare(study, kernels.estimate_truth(study).log_p))
    assert [r.seconds for r in again] == [r.seconds for r in results]
    assert all(same(*pair) for pair in zip(again, results, strict=True))
    assert contents(finished).keys() == before.keys()


@pytest.mark.slow
def test_an_interrupted_comparison_resumes(begin, truth, results, monkeypatch):
    anneal_examples, calls = chains.anneal_examples, []

    def interrupted(name, *rest, **options):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return anneal_examples(name, *rest, **options)

    monkeypatch.setattr(chains, "anneal_examples", interrupted)
    study = begin()
    with pytest.raises(KeyboardInterrupt):
        list(kernels.compare(study, truth.log_p))
    folder = study.folder / "rows"
    assert sorted(p.name for p in folder.iterdir()) == ["paper-3.npz", "tuned-3.npz"]
    # What a kill leaves: half of a file, under another name or, after a loss of power, its own.
    (folder / ".x.npz.1.partial").write_bytes(b"half")
    (folder / "tuned-3.npz").write_bytes((folder / "tuned-3.npz").read_bytes()[:500])
    # The order of steps does not matter, nor that one is given twice.
    study = begin(config=CONFIG._replace(steps=(13, 3, 13)))
    again = list(kernels.compare(study, truth.log_p))
    assert calls[3] == "tuned, 3"
    assert len(calls) == 3 + len(results) - 1
    assert all(same(*pair) for pair in zip(again, results, strict=True))
    assert sorted(p.suffix for p in folder.iterdir()) == [".npz"] * len(results)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": CONFIG._replace(chains=4)}, "other chains: choose"),
        ({"config": CONFIG._replace(seed=6)}, "other seed: choose"),
        ({"config": CONFIG._replace(num_examples=10)}, "other num_examples: choose"),
        ({"config": CONFIG._replace(steps=(3,))}, "other steps: choose"),
        ({"config": CONFIG._replace(truth_chains=9)}, "other truth_chains: choose"),
        ({"config": CONFIG._replace(truth_temperatures=201)}, "other truth_temperatures: choose"),
        ({"update": 8}, "other update: choose"),
        ({"variants": {**VARIANTS, "tuned": VARIANTS["paper"]}}, "other variants: choose"),
    ],
)
def test_other_settings_need_another_folder(begin, tmp_path, changes, words):
    folder = begin().folder
    before = contents(folder)
    with pytest.raises(InputError, match=f"{words} another folder"):
        begin(**changes)
    assert contents(folder) == before


@pytest.mark.slow
def test_other_weights_need_another_folder(begin, finished, results):
    before = contents(finished)
    other = eqx.tree_at(lambda m: m.bias, MODEL, MODEL.bias + 1)
    with pytest.raises(InputError, match="other weights: choose another folder"):
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
        ({"steps": ()}, r"steps is \(\): it must be one or more numbers, each at least 1"),
        ({"steps": (22, 0)}, r"steps is \(22, 0\): it must be one or more"),
        ({"truth_temperatures": 1}, "truth_temperatures is 1: it must be at least 2"),
        ({"truth_chains": 0}, "truth_chains is 0: it must be at least 1"),
        ({"seed": -1}, "seed is -1: it must be at least 0"),
    ],
)
def test_mistakes_are_reported_before_the_work(begin, tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        begin(config=CONFIG._replace(**changes))
    assert not (tmp_path / "out").exists()
