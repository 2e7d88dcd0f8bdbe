"""Breaks of what is beside the package: the paper's studies and the applications."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "a table reports the subset where the whole split was estimated",
        "paper/core/runs.py",
        "found.whole_split or found.estimate,",
        "found.estimate,",
        "paper/tests/core/test_runs.py::"
        "test_a_table_reports_the_whole_split_where_it_was_estimated",
    ),
    Break(
        "three seeds count as many",
        "paper/seeds/study.py",
        "widened * self.over_seeds",
        "self.over_seeds",
        "paper/tests/seeds/test_seeds.py::test_two_errors_over_three_seeds_are_those_of_students_t",
    ),
    Break(
        "a cell of other settings counts as finished",
        "applications/core/cells.py",
        "if before != wanted:",
        "if False:",
        "applications/tests/test_core.py::test_a_cell_of_other_settings_is_refused",
    ),
    Break(
        "a tree whose root depends on something",
        "applications/core/baselines.py",
        "p[0] = (single[0] + 2 * pseudocount) / (len(x) + 4 * pseudocount)",
        "p[0] = (0.3, 0.6)",
        "applications/tests/test_baselines.py::test_all_patterns_together_have_probability_one",
    ),
    Break(
        "the worst tree",
        "applications/core/baselines.py",
        "cost = information.max() + 1 - information",
        "cost = 1 + information",
        "applications/tests/test_baselines.py::test_the_tree_is_the_chain_that_made_the_data",
    ),
    Break(
        "couplings at the wrong temperature in the pairwise model's normaliser",
        "applications/neurons/pairwise.py",
        "expit(model.fields[i] + beta * (x @ model.couplings[i]))",
        "expit(model.fields[i] + 0.5 * beta * (x @ model.couplings[i]))",
        "applications/tests/test_pairwise.py::test_annealing_finds_the_normaliser",
    ),
    Break(
        "gaps count as agreement of sequences",
        "applications/proteins/alignment.py",
        "lengths = np.maximum(hot.sum(axis=1), 1)",
        "lengths = np.full(len(codes), codes.shape[1])",
        "applications/tests/test_alignment.py::test_weights_count_sequences_that_are_far_apart",
    ),
    Break(
        "relatives of held-out sequences are trained on",
        "applications/proteins/alignment.py",
        "return np.flatnonzero(~is_held_out), valid, test",
        "return np.arange(len(clusters)), valid, test",
        "applications/tests/test_alignment.py::test_held_out_clusters_are_not_trained_on",
    ),
    Break(
        "sequences are trained on as often as they are in the alignment",
        "applications/proteins/alignment.py",
        "ends = np.cumsum(weights)",
        "ends = np.cumsum(np.ones_like(weights))",
        "applications/tests/test_alignment.py::test_rows_are_drawn_as_often_as_their_weights_say",
    ),
    Break(
        "a fragment is held out from what it is a part of",
        "applications/proteins/alignment.py",
        "clusters[(agrees[first] | agrees[:, first]) & (clusters < 0)] = first",
        "clusters[agrees[first] & (clusters < 0)] = first",
        "applications/tests/test_alignment.py::test_weights_count_sequences_that_are_far_apart",
    ),
    Break(
        "patterns that share a level have its probability each",
        "applications/density/exclusive.py",
        "return -np.where(is_other, np.log(others), 0).sum(axis=1)",
        "return np.zeros(len(codes))",
        "applications/tests/test_exclusive.py::test_all_patterns_together_have_probability_one",
    ),
    Break(
        "columns that are apart by chance are one category",
        "applications/density/exclusive.py",
        "excludes = (ones.T @ ones == 0) & (expected >= _LEAST_EXPECTED)",
        "excludes = ones.T @ ones == 0",
        "applications/tests/test_exclusive.py::test_columns_that_are_apart_by_chance_are_no_group",
    ),
    Break(
        "noise is there without training",
        "applications/proteins/decoder.py",
        "self.factors = tuple(jnp.ones(layer.out_features) for layer in network.layers[:-1])",
        "self.factors = tuple(jnp.full(l.out_features, 1.2) for l in network.layers[:-1])",
        "applications/tests/test_noise.py::test_without_factors_it_is_the_network",
    ),
    Break(
        "all layers have the same noise",
        "applications/proteins/decoder.py",
        "1 + self.spread * jax.random.normal(k, ones.shape)",
        "1 + self.spread * jax.random.normal(key_noise, ones.shape)",
        "applications/tests/test_noise.py::"
        "test_factors_have_mean_one_and_the_spread_that_was_asked_for",
    ),
]
