"""Alignments are read in the columns of the first sequence, and their sequences weighted."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import spearmanr

from aisle.errors import InputError
from applications.proteins import __main__ as proteins, mutants
from applications.proteins.alignment import (
    LETTERS,
    Scan,
    drawn,
    read_alignment,
    read_scan,
    relatives,
    split_clusters,
)
from applications.proteins.decoder import SharedLetters

A2M = ">one/24-29\nhACd\nEF\n>two\n.A-.EX\n>three\nwCC.-F\n"


@pytest.fixture
def alignment(tmp_path):
    (tmp_path / "a.a2m").write_text(A2M)
    return read_alignment(tmp_path / "a.a2m")


def letters(codes):
    return ["".join("-" if np.isnan(c) else LETTERS[int(c)] for c in row) for row in codes]


def test_columns_are_those_of_the_first_sequence_in_upper_case(alignment):
    assert letters(alignment.codes) == ["ACEF", "A-E-", "CC-F"]
    assert alignment.positions.tolist() == [25, 26, 28, 29]


@pytest.mark.parametrize(
    ("text", "message"), [("", "no sequence"), (">a\nAC\n>b\nA\n", "b has 1 columns but the first")]
)
def test_what_is_no_alignment_is_refused(tmp_path, text, message):
    (tmp_path / "a.fasta").write_text(text)
    with pytest.raises(InputError, match=message):
        read_alignment(tmp_path / "a.fasta")


def test_weights_count_sequences_that_are_far_apart():
    codes = np.array([[0, 1, 2, 3, 4]] * 3 + [[0, 1, 2, 3, 9], [5, 6, 7, 8, 9]], float)
    found = relatives(codes)
    assert found.weights.tolist() == [0.25, 0.25, 0.25, 0.25, 1.0]
    assert found.clusters.tolist() == [0, 0, 0, 0, 4]
    # Gaps count for nobody: of its two letters, the sequence agrees with the first in both.
    codes = np.array([[0, 1, 2, 3, 4], [0, 1, np.nan, np.nan, np.nan]])
    assert relatives(codes).weights.tolist() == [1.0, 0.5]
    # A fragment is in the cluster of what it is a part of.
    assert relatives(codes).clusters.tolist() == [0, 0]
    assert relatives(np.full((2, 3), np.nan)).weights.tolist() == [1.0, 1.0]


def test_rows_are_drawn_as_often_as_their_weights_say():
    counts = np.bincount(drawn(np.array([0.5, 0.25, 1.0, 0.25]), 8))
    assert counts.tolist() == [2, 1, 4, 1]
    weights = np.random.default_rng(0).random(30)
    counts = np.bincount(drawn(weights, 1000), minlength=30)
    assert (np.abs(counts - 1000 * weights / weights.sum()) <= 1).all()


def test_sites_share_letters_whose_network_ends_in_their_bias():
    decoder = SharedLetters(jax.random.key(0), (2, 8), 2, jnp.arange(60.0))
    found = np.asarray(decoder(jnp.ones(2)) - decoder.bias).reshape(20, 3)
    assert np.linalg.matrix_rank(found, tol=1e-4) == 2
    silent = eqx.tree_at(lambda d: d.letters, decoder, replace_fn=jnp.zeros_like)
    np.testing.assert_allclose(silent(jnp.ones(2)), decoder.bias)
    # Two letters that are alike change alike everywhere.
    alike = eqx.tree_at(lambda d: d.letters, decoder, decoder.letters.at[1].set(decoder.letters[0]))
    changes = (alike(jnp.ones(2)) - alike.bias).reshape(20, 3)
    np.testing.assert_allclose(changes[0], changes[1], rtol=1e-5)


def test_held_out_clusters_are_not_trained_on():
    clusters = np.repeat(np.arange(0, 60, 2), 2)
    train, valid, test = split_clusters(clusters)
    assert (len(train), len(valid), len(test)) == (52, 2, 2)
    assert 0 in train and 1 in train
    held_out = [set(clusters[rows]) for rows in (train, valid, test)]
    assert not set.intersection(*held_out[:2]) and not set.intersection(*held_out[::2])
    # One sequence each.
    assert set(clusters[valid]) == set(valid) and set(valid).isdisjoint(test)


def test_a_scan_has_the_mutants_in_the_alignment(tmp_path, alignment):
    (tmp_path / "a.csv").write_text(
        "\ufeff,mutant,2500\n0,H24C,1\n1,C26F,0.5\n2,E28A,\n3,F29A,-1\n"
    )
    scan = read_scan(tmp_path / "a.csv", alignment, "2500")
    assert scan.columns.tolist() == [1, 3] and scan.effects.tolist() == [0.5, -1.0]
    assert [LETTERS[code] for code in scan.codes] == ["F", "A"]
    (tmp_path / "a.csv").write_text("mutant,2500,other\nC26F,0.5,\nF29A,-1,3\n")
    scan = read_scan(tmp_path / "a.csv", alignment, "2500", ["other"])
    assert scan.effects.tolist() == [-1.0] and scan.published["other"].tolist() == [3.0]
    (tmp_path / "a.csv").write_text("mutant,2500\nF26A,1\n")
    with pytest.raises(InputError, match="F26A does not begin with the letter there"):
        read_scan(tmp_path / "a.csv", alignment, "2500")


def test_independent_sites_are_normalised_and_leave_out_gaps():
    codes = np.array([[0, 1], [0, np.nan], [3, 1]])
    log_shares = proteins.site_shares(codes, np.array([1.0, 2.0, 1.0]), 1)
    assert logsumexp(log_shares, axis=0) == pytest.approx([0, 0])
    assert np.exp(log_shares[0, 0]) == pytest.approx((3 + 1 / 20) / 5)
    found = proteins.site_log_p(log_shares, codes)
    assert found == pytest.approx(
        [log_shares[0, 0] + log_shares[1, 1], log_shares[0, 0], log_shares[3, 0] + log_shares[1, 1]]
    )


def test_a_correlation_of_ranks_is_spearmans():
    score, effects = np.random.default_rng(0).integers(0, 5, (2, 30)).astype(float)
    scan = Scan(np.zeros(30, int), np.zeros(30, int), effects, {})
    assert mutants.rho(score, scan) == pytest.approx(spearmanr(score, effects)[0])
    assert mutants.rho(np.exp(effects), scan) == pytest.approx(1)


@pytest.mark.slow
def test_a_decoder_that_ignores_its_latents_scores_as_independent_sites():
    family = proteins.made_up()
    model, proposal = proteins._built(proteins.Form(2, (), 1.0), family, 0)
    model = eqx.tree_at(lambda m: m.decoder.layers[-1].weight, model, replace_fn=jnp.zeros_like)
    parts = ((model, proposal), family.alignment, family.scan)
    wanted = proteins.site_scores(family)
    found = mutants.by_draws(*parts, 4)
    np.testing.assert_allclose(found.values, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.errors, 0, atol=1e-5)
    changed = mutants.mutants(*parts[1:]) != family.alignment.codes[0]
    assert (changed.sum(axis=1) <= 1).all() and changed.any()
