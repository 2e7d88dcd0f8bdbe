"""The whole measurement of gradients, and its reference."""

import shutil
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aisle.errors import InputError
from known_gradients import (
    MODEL,
    NUM_EXAMPLES,
    SMALL,
    Exact,
    Shifted,
    exact_gradient,
    examples,
    posterior_log_joints,
    program_of,
)
from measures import z_score
from paper.core.chains import Kernel
from paper.gradients import reference as references, study
from paper.gradients.averages import average
from paper.gradients.bench import Bench
from paper.gradients.estimators import ESTIMATORS
from paper.gradients.study import Case

pytestmark = pytest.mark.usefixtures("quick_compilation")


FEW = ("mh-hmc", "ais", "1/2 ais, then hmc, equal weights")


@contextmanager
def fewer():
    """Measure two estimators, and one more for the curve."""
    every = dict(ESTIMATORS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "CURVE", (1, 2))
        for name in every.keys() - set(FEW):
            del ESTIMATORS[name]
        try:
            yield
        finally:
            # In their old order, too.
            ESTIMATORS.clear()
            ESTIMATORS.update(every)


@pytest.fixture
def few():
    with fewer():
        yield


def measure(folder=None, **changes):
    settings = SMALL._replace(**changes)
    xs = jnp.asarray(examples().xs)
    return study.measure(
        MODEL, Shifted(MODEL), examples(), xs, settings, folder=folder, show_progress=False
    )


@pytest.fixture(scope="module")
def stored(quick_compilation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "parts"
    with fewer():
        return folder, measure(folder)


@pytest.mark.slow
def test_the_reference_is_the_exact_gradient(stored):
    found, truth = stored[1].reference.gradients, exact_gradient()
    assert found.shape == (8, len(truth))
    z = [z_score(found[:, i], truth[i]) for i in range(len(truth))]
    # Of Student's law with 7 degrees of freedom: 5 is beyond one in a thousand.
    assert np.abs(z).max() < 5
    assert np.sqrt(np.mean(np.square(z))) < 2
    # And there is little noise that an error could hide in.
    error = found.std(axis=0, ddof=1) / np.sqrt(8)
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(truth)


@pytest.mark.slow
def test_the_reference_knows_its_norm_and_its_noise(stored):
    reference, truth = stored[1].reference, np.linalg.norm(exact_gradient())
    assert abs(reference.norm / truth - 1) < 0.1
    spread = np.linalg.norm(reference.gradients.std(axis=0, ddof=1)) / np.sqrt(8)
    assert reference.relative_noise == pytest.approx(spread / reference.norm, rel=1e-4)


@pytest.mark.slow
def test_the_reference_knows_the_posterior_mean_of_the_log_joint(stored):
    reference, truth = stored[1].reference, posterior_log_joints()
    z = [z_score(reference.log_joint[:, i], truth[i]) for i in range(NUM_EXAMPLES)]
    assert np.abs(z).max() < 5
    assert np.abs(reference.log_joint.mean(axis=0) - truth).max() < 0.5
    assert abs(reference.weights_change.mean) < 0.3
    assert np.all((reference.effective_share > 0.5) & (reference.effective_share <= 1))


def test_a_part_of_the_reference_sees_its_own_chains_only():
    num_parts, num_stops = 3, 2
    log_weights = jnp.repeat(jnp.arange(6.0), num_stops)
    shares = np.asarray(references._weigh_parts(num_parts, num_stops, log_weights))
    assert shares.shape == (num_parts + 1, 12)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(shares[-1], 1 / 12, rtol=1e-6)
    for part in range(num_parts):
        is_own = np.arange(12) // num_stops % num_parts == part
        assert np.all((shares[part] > 0) == is_own)
        # Chains 3 apart have weights of a ratio of exp(3), and the stops of a chain equal ones.
        first, again, last, _ = shares[part][is_own]
        assert first == again
        assert last / first == pytest.approx(np.exp(3), rel=1e-5)


@pytest.mark.slow
def test_a_measurement_has_a_result_for_every_estimator(stored):
    _, found = stored
    names = {(result.kernel, result.num_temperatures, result.estimator) for result in found.results}
    wanted = {(kernel, 2, name) for kernel in ("paper", "tuned") for name in FEW}
    assert names == wanted
    assert len(found.results) == len(wanted)
    assert [(result.num_temperatures, result.estimator) for result in found.curve] == [
        (1, "mh-hmc"),
        (1, "ais"),
        (1, "1/2 ais, then hmc, equal weights"),
    ]
    for result in (*found.results, *found.curve):
        assert np.all(np.isfinite(list(result[5:])))
        # Repeats differ.
        assert result.squared_noise > 1e-4
        assert 1 <= result.effective_sample_size <= 2.001
        assert 0 < result.acceptance <= 1


@pytest.mark.slow
def test_kernels_cost_the_same(stored):
    paper, tuned = ({r.kernel: r for r in stored[1].results}[name] for name in ("paper", "tuned"))
    assert (paper.num_transitions, paper.num_leapfrog) == (2, 2)
    assert tuned.num_transitions * tuned.num_leapfrog == 4
    assert paper.gradients == tuned.gradients == 2 * (1 + 4 + 1)


def bench(kind=Shifted, **changes):
    xs, settings = jnp.asarray(examples().xs), SMALL._replace(**changes)
    return Bench(MODEL, kind(MODEL), examples(), xs, settings, None, False)


@pytest.mark.parametrize(("T", "L", "transitions"), [(5, 5, 12), (11, 5, 27), (1, 1, 1), (3, 4, 6)])
def test_shorter_transitions_are_more_of_them(T, L, transitions):
    paper, tuned = (
        study._first_kernel(bench(num_leapfrog=L), Case(name, T, "linear"))
        for name in ("paper", "tuned")
    )
    assert (len(paper.step_sizes), paper.num_leapfrog) == (T, L)
    assert (paper.precondition, paper.refresh) == (0, 1)
    assert (len(tuned.step_sizes), tuned.num_leapfrog) == (transitions, 2)
    assert (tuned.precondition, tuned.refresh) == (0.75, 0.6)


def test_a_proposal_without_a_scale_does_not_precondition():
    tuned = study._first_kernel(bench(Exact), Case("tuned", 2, "linear"))
    assert (tuned.precondition, tuned.refresh) == (0, 0.6)


@pytest.mark.slow
def test_a_second_start_reads_what_is_done(monkeypatch, few, stored, tmp_path):
    folder, found = stored
    shutil.copytree(folder, tmp_path / "parts")
    (tmp_path / "parts" / "paper-T2-linear.json").write_text('[{"kernel": "pap')
    (tmp_path / "parts" / "tuned-T2-immediate.json").unlink()
    made, original = [], study._measure

    def counted(bench, case, *rest):
        made.append(case.name)
        return original(bench, case, *rest)

    monkeypatch.setattr(study, "_measure", counted)
    again = measure(tmp_path / "parts")
    assert made == ["paper-T2-linear", "tuned-T2-immediate"]
    assert (again.results, again.curve) == (found.results, found.curve)
    np.testing.assert_array_equal(again.reference.gradients, found.reference.gradients)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
def test_draws_do_not_depend_on_what_else_is_measured(monkeypatch, few, stored):
    monkeypatch.setattr(study, "CURVE", ())
    monkeypatch.setattr(study, "KERNELS", ("tuned",))
    alone = measure()
    assert alone.results == [result for result in stored[1].results if result.kernel == "tuned"]
    assert alone.curve == []


@pytest.mark.slow
def test_step_sizes_are_tuned_for_the_very_schedule():
    found = study._tuned(bench(), Case("paper", 2, "immediate"))
    np.testing.assert_array_equal(found.betas, [0, 1, 1])
    chains = Kernel(found.betas, found.step_sizes, 400, found.num_leapfrog)
    accepted = average(program_of(Shifted), chains, jax.random.key(5), examples()).acceptance
    np.testing.assert_allclose(accepted, 0.6, atol=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_examples": 0}, "num_examples is 0: it must be at least 1"),
        ({"repeats": 2}, "repeats is 2: it must be at least 3"),
        ({"num_samples": 0}, "num_samples is 0: it must be at least 1"),
        ({"temperatures": (5, 0)}, r"temperatures is \(5, 0\): it must be one or more numbers"),
        ({"temperatures": ()}, r"temperatures is \(\): it must be one or more numbers"),
        ({"num_leapfrog": 0}, "num_leapfrog is 0: it must be at least 1"),
        ({"seed": -1}, "seed is -1: it must be at least 0"),
    ],
)
def test_mistakes_are_reported_in_one_line(tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        study.measure_run(tmp_path / "no run", SMALL._replace(**changes))
