"""Tables and answers say who is ahead, and say so only where it is clear."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.errors import InputError
from aisle.statistics import Mean
from applications.core.models import Scored, Trained
from applications.counts import __main__ as counts
from applications.density import __main__ as density
from applications.imputation import __main__ as imputation
from applications.neurons import __main__ as neurons
from applications.outliers import __main__ as outliers
from applications.proteins import __main__ as proteins

BASE = np.linspace(-12, -8, 50)
WAVE = np.resize([1.0, -1.0], 50)


def scored(gain, gap=0.0, noise=0.1):
    """Return log p that is higher than that of others, by example with some noise."""
    facts = {"latents": 4, "updates": 99, "seconds": 10}
    known = None if gap is None else Mean(gap, 0.01, 20)
    return Scored(BASE + gain + noise * WAVE, known, facts)


def models_of_counts(**gains):
    found = {
        (family, method): scored(0.0) for family in counts.FAMILIES for method in ("VAE", "AIS")
    }
    return found | {tuple(k.split("_")): scored(v, noise=0.3) for k, v in gains.items()}


def test_counts_name_the_best_model_and_what_annealing_gains():
    models = models_of_counts(**{"negative binomial_VAE": 2.0, "negative binomial_AIS": 1.0})
    table = counts.table({"cells": models})
    assert "cells: negative binomial counts by VAE are best at -8.00" in table.answer
    assert "2.00 +- 0.03 over zero-inflated by VAE)." in table.answer
    assert "-1.00 +- 0.00 (negative binomial)" in table.answer
    assert "+0.00 +- 0.00 (Poisson, not clear)" in table.answer
    assert len(table.rows) == 6
    models = models_of_counts(**{"zero-inflated_AIS": 0.01})
    answer = counts.table({"cells": models}).answer
    assert "over Poisson by VAE, which is not clear" in answer


def test_a_gap_may_swallow_a_lead():
    models = models_of_counts(Poisson_AIS=1.0)
    models["Poisson", "VAE"] = scored(0.0, gap=1.5)
    assert "(Poisson, not clear)" in counts.table({"cells": models}).answer


def test_density_counts_on_which_sets_latents_are_ahead():
    exact = {
        "independent bits": scored(-3, None),
        "mixture of 10": scored(0, None),
        "Chow-Liu tree": scored(-1, None),
    }
    good = {("VAE", 4): scored(0.5, noise=0.3), ("AIS", 4): scored(1.0, noise=0.5)}
    bad = {("VAE", 4): scored(-2.0, gap=0.1), ("AIS", 4): scored(-2.0, gap=0.1)}
    # What the gap may hide is not lost.
    open_ = {("VAE", 4): scored(-2.0, gap=2.5), ("AIS", 4): scored(-2.0, gap=2.5)}
    exactly = Mean(-9.0, 0.0001, 4)
    table = density.table(
        {
            "first": density.Found(exact, density.Latent("bits", good), exactly),
            "second": density.Found(exact, density.Latent("bits", bad), None),
            "third": density.Found(exact, density.Latent("categories", open_), None),
        }
    )
    answer = table.answer
    assert "on 1 (first), level with it on 1 (third), behind it on 1 (second)." in answer
    assert "clearly better than the VAE after the same time on 1 (first)." in answer
    assert str(table.rows[4]["over the best exact model"]) == "1.00 +- 0.06"
    assert "of a model with latents on 1 of 3." in answer
    assert "fewest latents is -9.0000 +- 0.0001; annealing has -9.0000." in answer
    assert [row["gap"] for row in table.rows[:3]] == [None] * 3
    assert table.rows[1]["over the best exact model"] is None
    assert [row["model"] for row in table.rows[-2:]] == [
        "VAE, 4 latents, categories",
        "AIS, 4 latents, categories",
    ]


def test_log_p_is_integrated_over_few_latents():
    # A decoder that ignores its latents has independent bits.
    model, proposal = aisle.mlp_model(
        jax.random.key(0),
        *aisle.Bernoulli.fitted(np.array([[0, 1], [1, 1], [0, 0], [0, 1]])),
        num_latents=2,
        hidden=(3,),
    )
    flat = jax.tree.map(lambda a: a * 0 if a.ndim == 2 else a, model)
    x = np.array([[1, 0], [0, 1], [0, 0]])
    p = np.asarray(flat.mean_observation(jnp.zeros(2)), float)
    expected = np.log(np.where(x == 1, p, 1 - p)).sum(axis=1).mean()
    found = density.integrated(Trained((flat, proposal), 0.0, 1, 1.0), x, points=256)
    assert found["mean"] == pytest.approx(expected, abs=1e-5)
    # One that does not has the sum of p over all patterns, which is 1.
    every = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    trained = Trained((model, proposal), 0.0, 1, 1.0)
    each = [density.integrated(trained, row[None], 4096) for row in every]
    assert sum(np.exp(one["mean"]) for one in each) == pytest.approx(1, abs=1e-4)


def test_an_environment_without_networks_is_named():
    with pytest.raises(InputError, match=r"--networks .*No module named 'deeprob'.*name a Python"):
        density.sum_product(Path(sys.executable), density.made_up())
    with pytest.raises(InputError, match="--networks /nowhere/python does not learn"):
        density.sum_product(Path("/nowhere/python"), density.made_up())


def test_imputation_says_who_fills_best():
    one = {"independent": -20.0, "log_p": {"VAE": (-15.0, 0.1), "AIS": (-14.0, 0.1)}, "latents": 2}
    errors = {"column means": 1.0, "IterativeImputer": 0.7, "VAE": 0.8, "AIS": 0.75}
    runs = [one | {"errors": {m: e + 0.01 * i for m, e in errors.items()}} for i in range(3)]
    table = imputation.table(runs)
    assert table.answer.startswith("IterativeImputer fills best, with an error of 0.71")
    assert "worse are column means by 0.30 +- 0.00, VAE by 0.10 +- 0.00" in table.answer
    assert "not clear" not in table.answer
    assert table.rows[1]["worse than the best"] is None
    runs[0]["errors"] |= {"AIS": 0.55}
    assert "IterativeImputer by 0.02 +- 0.07 (not clear)" in imputation.table(runs).answer


def test_independent_columns_leave_out_what_is_missing():
    x = np.array([[0.0, 10.0], [2.0, np.nan], [np.nan, 30.0]])
    data = imputation.Splits(x, x, np.array([[1.0, np.nan]]))
    assert imputation._independent(data) == pytest.approx(-0.5 * np.log(2 * np.pi))


@pytest.mark.parametrize(
    ("gain", "words"), [(1, "are better than pair"), (-1, "couplings are bet")]
)
def test_neurons_say_which_model_is_better(gain, words):
    models = {"independent": scored(-5, None), "pairwise": scored(0, None, noise=0.3)}
    models |= {"VAE": scored(gain), "AIS": scored(gain)}
    table = neurons.table({"4 neurons": models}, {"4 neurons": Mean(1.0, 0.0012, 16)})
    assert words in table.answer and "AIS is not clearly better than the VAE" in table.answer
    assert "all 16 patterns of 4 neurons, p(x) of the AIS model is 1.0000 +- 0.0012" in table.answer


def test_outliers_are_ranked_by_the_area_under_the_curve():
    is_outlier = np.arange(40) >= 20
    good = np.where(is_outlier, -2.0, 0.0) + np.linspace(0, 1, 40)
    scores = dict.fromkeys(outliers.SCORES, np.zeros(40).tolist()) | {
        "GaussianMixture": good.tolist()
    }
    found = [{"scores": scores, "is_outlier": is_outlier, "gap": 0.1}] * 2
    table = outliers.table(found)
    assert table.answer.startswith(
        "GaussianMixture finds the unknown class best, with an area of 1"
    )
    assert table.rows[-1]["area under the ROC curve"] == "0.500 +- 0.000"


def test_classes_are_left_out_of_training():
    data, unknown = outliers.parts_of(3)
    assert [len(part) for part in data] == [1200, 150, 200] and len(unknown) == 170
    known = {row.tobytes() for part in data for row in part}
    assert not any(row.tobytes() in known for row in unknown)


def test_proteins_compare_held_out_sequences_and_the_scan():
    found = {"VAE": scored(0), "AIS": scored(1, noise=0.3), "independent sites": scored(-9, None)}
    rhos = dict.fromkeys([*found, "AIS on all sequences, mean of 5"], 0.5)
    family = proteins.made_up()._replace(num_effective=100.0)
    mean = {"mean": 0.0, "standard_error": 0.1, "num_examples": 2}
    check = {"difference": 0.0, "largest": 0.2, "error": 0.1, "gap": mean}
    table = proteins.table(found, rhos, proteins.Form(5, (), 1.0, 3), family, check)
    assert "AIS is better than the VAE by 1.00" in table.answer
    assert "scan of 10 single mutants" in table.answer and "100 effective" in table.notes
    assert "5 latents, one layer, 3 features of a site" in table.notes


def test_pictures_are_drawn():
    models = models_of_counts()
    assert len(counts.picture({"a": models, "b": models}).axes) == 2
    exact = {"independent bits": scored(-3, None), "Chow-Liu tree": scored(0, None)}
    latent = {("AIS", 4): scored(1), ("VAE", 10): scored(1), ("AIS", 10): scored(1)}
    found = dict.fromkeys("abcde", density.Found(exact, density.Latent("bits", latent), None))
    axes = density.picture(found).axes
    # The tree, and both methods with the chosen number of latents.
    assert len(axes) == 5 and len(axes[0].get_yticklabels()) == 3
