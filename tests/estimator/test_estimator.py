"""`aisle.LatentDensity` as users of scikit-learn use it, with tiny networks of one shape."""

import pickle
from copy import copy as shallow_copy

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from aisle import AIS, Certificate, InputError, LatentDensity, Sampler
from aisle.data.tables import Column
from aisle.estimator.columns import as_frame, sorted_rows
from aisle.estimator.starting import Form, build, choose_factors, with_factors
from aisle.estimator.training import (
    SCORE_KERNEL,
    _folds as folds_of,
    _looks as looks_of,
    examples_of,
)
from aisle.evaluation import rows
from measures import compilations

pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL = {
    "num_latents": 2,
    "hidden": (4,),
    "method": "vae",
    "max_updates": 32,
    "num_chains": 2,
    "num_temperatures": 2,
    "random_state": 0,
}


def table(number=40, seed=0):
    """Return rows of three columns with one factor, in units far from one."""
    random = np.random.default_rng(seed)
    inside = random.normal(size=(number, 1)) * [1.0, -2.0, 0.5] + random.normal(size=(number, 3))
    return 100 + [1.0, 10.0, 0.1] * inside


X = table()


@pytest.fixture(scope="module")
def fitted(quick_compilation):
    return LatentDensity(**SMALL).fit(X)


def test_the_start_is_factor_analysis():
    """Log p(x) by annealing from its own posterior is exact, whatever the chains."""
    form = Form(("gaussian",) * 3, (0,) * 3, 2, (4,))
    networks = build(form, X, 0, is_silent=True)
    ladder = SCORE_KERNEL.ladder(2)
    model, proposal = with_factors(*networks, X, 1)
    found = rows.score_rows(model, proposal, examples_of(X), ladder, num_chains=2)
    linear, units = model.decoder.linear, model.likelihood.units
    weight, log_noise = (np.float64(part) for part in (linear.weight[:3], linear.bias[3:]))
    covariance = weight @ weight.T + np.diag(np.exp(2 * log_noise))
    inside = (X - np.asarray(units.location)) / np.asarray(units.scale)
    expected = multivariate_normal.logpdf(inside, cov=covariance)
    expected -= np.log(np.float64(units.scale)).sum()
    np.testing.assert_allclose(found.log_p, expected, atol=0.02)
    best = FactorAnalysis(1, svd_method="lapack", tol=1e-12, max_iter=10_000).fit(inside)
    assert abs(expected.mean() + np.log(X.std(axis=0)).sum() - best.score(inside)) < 0.02
    assert np.all(found.error < 1e-2) and np.all(found.effective_chains > 1.99)


def test_the_number_of_factors_is_chosen_by_what_is_held_out():
    x = np.random.default_rng(0).normal(size=(200, 6))
    folds = np.array_split(np.arange(200), 4)
    assert choose_factors(x, folds, 5, 5) == 0
    assert choose_factors(x + 2 * x[:, :1], folds, 5, 5) == 1
    # More than usual, if they gain enough.
    two = x + 2 * x[:, :1] + 0.5 * x[:, 1:2] * [0, 1, -1, 1, -1, 1]
    assert choose_factors(two, folds, 5, 5) == choose_factors(two, folds, 5, 1) == 2
    slight = x + 2 * x[:, :1] + 0.2 * x[:, 1:2] * [0, 1, -1, 1, -1, 1]
    assert (choose_factors(slight, folds, 5, 5), choose_factors(slight, folds, 5, 1)) == (2, 1)


def test_looks_are_rarer_the_later():
    assert looks_of(512) == [*range(0, 257, 32), 320, 384, 480, 512]
    assert looks_of(32) == [0, 32] and looks_of(20_000)[-1] == 20_000
    assert len(looks_of(20_000)) < 40


def test_step_sizes_reach_the_target(fitted):
    """By the very chains that score rows, with other draws than those they were tuned by."""
    keys = np.random.default_rng(99).integers(0, 2**32, (40, 2), np.uint32)
    networks = (fitted.model_, fitted.proposal_, fitted._ladder)
    found = rows._by_tiles(rows._score_tile, networks, (examples_of(X), keys), 2)[3]
    errors = found.std(axis=0) / np.sqrt(len(X))
    excess = found.mean(axis=0) - SCORE_KERNEL.target_accept
    assert np.all(np.abs(excess) < 4 * errors + 0.02)


@pytest.mark.slow
def test_many_factors_get_latents_enough():
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 12)) @ random.normal(size=(12, 30)) * 3
    x = x + random.normal(size=x.shape)
    few = {name: SMALL[name] for name in SMALL if name != "num_latents"}
    assert LatentDensity(**few).fit(x).transform(x).shape == (150, 20)


def test_scores_depend_on_a_rows_content_alone(fitted):
    whole, order = fitted.score_samples(X), np.random.default_rng(1).permutation(len(X))
    np.testing.assert_allclose(fitted.score_samples(X[order]), whole[order], rtol=0, atol=1e-12)
    alone = [fitted.score_samples(row[None])[0] for row in X[:3]]
    np.testing.assert_allclose(alone, whole[:3], rtol=0, atol=1e-12)
    assert len(np.unique(whole)) == len(X)
    assert fitted.score(X) == whole.mean()


def test_weights_are_numbers_of_rows_and_order_does_not_matter(fitted):
    number = np.random.default_rng(2).integers(0, 3, len(X))
    repeated = LatentDensity(**SMALL).fit(np.repeat(X, number, axis=0)[::-1])
    weighted = LatentDensity(**SMALL).fit(X, sample_weight=number)
    np.testing.assert_array_equal(weighted.score_samples(X), repeated.score_samples(X))
    assert np.all(weighted.score_samples(X) != fitted.score_samples(X))


def test_rows_are_counted_whatever_the_bits_of_nan_and_zero():
    x = np.array([[0.0, np.nan], [-0.0, -np.nan], [1.0, 2.0], [3.0, 4.0]])
    found = sorted_rows(x, np.array([1.0, 1.0, 4.0, 0.0]))
    assert sorted(np.bincount(found.patterns)) == [2, 4]
    np.testing.assert_array_equal(found.weights, 1)
    assert np.sum(found.values[:, 0] == 1) == 4


def test_weights_that_are_no_whole_numbers_are_kept():
    x, weights = np.arange(4.0)[:, None], np.array([0.2, 1.0, 2.6, 1e9])
    found = sorted_rows(x, weights)
    assert len(found.values) < 110_000
    total = np.bincount(found.values[:, 0].astype(int), found.weights)
    np.testing.assert_allclose(total / total[3], weights / 1e9, rtol=1e-9)


def test_rows_that_repeat_themselves_are_learned_from():
    """Four patterns of two bits are not four rows."""
    x = np.random.default_rng(0).random((2000, 2)) < [0.9, 0.2]
    bits = LatentDensity(likelihood="bernoulli", **SMALL).fit(x.astype(float))
    every = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    shares = [np.mean((x == row).all(axis=1)) for row in every]
    np.testing.assert_allclose(np.exp(bits.score_samples(every)), shares, atol=0.03)


def test_copies_of_real_rows_are_held_out_together():
    patterns = np.repeat(np.arange(9), [1, 2, 3] * 3)
    folds = folds_of(patterns, seed=0)
    held_out = [set(patterns[fold]) for fold in folds]
    assert sum(map(len, held_out)) == 9 and set.union(*held_out) == set(range(9))
    assert sum(map(len, folds)) == len(patterns)


def test_a_second_fit_compiles_nothing(fitted):
    with compilations() as found:
        other = LatentDensity(**SMALL | {"random_state": 1}).fit(table(33, seed=1))
        other.score(X[:7])
    assert found == []


@pytest.mark.slow
def test_annealing_follows_where_networks_gain():
    angle = np.random.default_rng(0).uniform(0, 6.3, 300)
    noise = 0.02 * np.random.default_rng(1).normal(size=(300, 3))
    curved = np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle)], axis=1) + noise
    chosen = {"method": AIS(num_samples=1, num_temperatures=2), "learning_rate": 0.01}
    found = LatentDensity(**SMALL | chosen).fit(curved)
    assert len(found.num_updates_) == 2 and found.num_updates_[0] == 32


def test_methods_return_what_they_say(fitted):
    latents = fitted.transform(X)
    assert latents.shape == (40, 2) and latents.dtype == np.float64
    assert fitted.inverse_transform(latents).shape == X.shape
    with pytest.raises(InputError, match="X has 3 columns, but there are 2 latents"):
        fitted.inverse_transform(X)
    drawn = fitted.sample(5, random_state=3)
    np.testing.assert_array_equal(drawn, fitted.sample(5, random_state=3))
    # Within the columns' own range, with a wide margin.
    assert np.all(np.abs(drawn - X.mean(axis=0)) < 10 * X.std(axis=0))
    annealed = clone(fitted).set_params(embedding="annealing").fit(X).transform(X)
    assert np.any(annealed != latents)


def test_missing_values_are_scored(fitted):
    x = X[:5].copy()
    x[0, 1] = x[2] = np.nan
    scores = fitted.score_samples(x)
    assert np.isfinite(scores).all()
    # Nothing was observed of row 2: p = 1.
    assert abs(scores[2]) < 1 and abs(scores[0] - fitted.score_samples(X[:1])[0]) > 1e-3


@pytest.mark.slow
def test_missing_values_are_filled(fitted):
    x = X[:5].copy()
    x[0, 1] = x[2] = np.nan
    filled = fitted.impute(x, num_draws=3)
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])
    assert fitted.impute(x, num_draws=3, average=False).shape == (5, 3, 3)


@pytest.mark.slow
def test_it_is_certified(fitted):
    found = fitted.certify(
        X[:4], sampler=Sampler(num_chains=2, num_temperatures=2), certificate=Certificate(3)
    )
    assert found.gap is not None and len(found.log_p) == 4


def test_it_is_saved_and_pickled(fitted, tmp_path):
    fitted.save(tmp_path / "own.safetensors")
    for copy in (
        LatentDensity.load(tmp_path / "own.safetensors"),
        pickle.loads(pickle.dumps(fitted)),
    ):
        np.testing.assert_array_equal(copy.score_samples(X), fitted.score_samples(X))
        assert copy.get_params() == fitted.get_params()
        assert copy.num_updates_ == fitted.num_updates_


def test_parameters_that_are_arrays_are_saved_as_lists(fitted, tmp_path):
    changed = shallow_copy(fitted)
    changed.hidden = np.array(fitted.hidden)
    changed.save(tmp_path / "own.safetensors")
    loaded = LatentDensity.load(tmp_path / "own.safetensors")
    assert list(loaded.hidden) == list(fitted.hidden)


def test_frames_have_names_in_and_out():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = LatentDensity(**SMALL).set_output(transform="pandas").fit(frame)
    assert [column.kind for column in fitted.columns_] == ["real"] * 3
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert list(fitted.transform(frame).columns) == ["latentdensity0", "latentdensity1"]
    assert list(fitted.sample(2).columns) == ["a", "b", "c"]
    np.testing.assert_array_equal(
        fitted.score_samples(frame), LatentDensity(**SMALL).fit(X).score_samples(X)
    )


def test_frames_are_made_of_numbers_with_texts_index_and_whole_numbers():
    known = [Column("a", "real", ()), Column("n", "count", ()), Column("t", "bit", ("no", "yes"))]
    like = pd.DataFrame({"a": [0, 0]}, index=[7, 3])
    found = as_frame(np.array([[0.5, 2.0, 1.0], [1.0, 0.0, np.nan]]), known, "pandas", like)
    expected = {"a": [0.5, 1.0], "n": [2, 0], "t": ["yes", None]}
    pd.testing.assert_frame_equal(found, pd.DataFrame(expected, index=[7, 3]))
    assert as_frame(np.array([[0.5]]), [Column("n", "count", ())], "pandas")["n"][0] == 0.5


def test_pipelines():
    pipeline = make_pipeline(StandardScaler(), LatentDensity(**SMALL)).fit(X)
    assert np.isfinite(pipeline.score(X))


def test_column_transformers():
    wide = np.concatenate([X, X], axis=1)
    chosen = ColumnTransformer([("z", LatentDensity(**SMALL), [0, 1, 2])])
    assert chosen.fit_transform(wide).shape == (40, 2)


def test_cross_validation():
    assert np.isfinite(cross_val_score(LatentDensity(**SMALL), X, cv=2)).all()


@pytest.mark.slow
def test_grid_search():
    search = GridSearchCV(LatentDensity(**SMALL), {"max_updates": [32, 64]}, cv=2).fit(X)
    assert search.best_params_["max_updates"] in (32, 64)


def test_clones_are_not_fitted(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params() and not hasattr(copy, "model_")
    for method in (copy.score, copy.transform, copy.impute, copy.certify, copy.inverse_transform):
        with pytest.raises(NotFittedError):
            method(X)


def test_progress_is_shown_when_asked(capsys):
    LatentDensity(**SMALL).fit(X)
    assert capsys.readouterr() == ("", "")
    LatentDensity(**SMALL | {"verbose": True}).fit(X)
    assert "held-out bound" in capsys.readouterr().err


def test_constant_columns_work():
    x = np.column_stack([X[:, :2], np.full(40, 7.0)])
    assert np.isfinite(LatentDensity(**SMALL).fit(x).score_samples(x)).all()


@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(
    ("change", "x", "words"),
    [
        ({"num_latents": 0}, X, "num_latents is 0"),
        ({"method": "em"}, X, "method is 'em': it must be one of ais, iwae, vae"),
        ({"likelihood": "normal"}, X, "likelihood is 'normal': choose from auto, bernoulli"),
        ({"likelihood": "bernoulli"}, X, "Bernoulli"),
        ({"embedding": "pca"}, X, "embedding is 'pca'"),
        ({}, np.full((4, 2), np.nan), "no value in column 0"),
        ({}, X[:1], "1 sample"),
        ({}, X + np.array([0, 1e9, 0]), "in column 1, which single precision cannot tell apart"),
        ({"hidden": 5}, X, "hidden is 5: it must be units of each layer"),
    ],
)
def test_mistakes(change, x, words):
    with pytest.raises(ValueError, match=words) as error:
        LatentDensity(**SMALL | change).fit(x)
    assert isinstance(error.value, InputError) or "sample" in words


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.filterwarnings("default")
def test_every_check_of_scikit_learn_passes():
    """All checks, none of them expected to fail."""
    found = check_estimator(LatentDensity(), on_skip=None)
    # This one asks for a setting of SciPy that has to be made before the start.
    others = [one for one in found if one["check_name"] != "check_array_api_input"]
    assert {one["status"] for one in others} == {"passed"} and len(others) > 40
