"""Break the code on purpose, and see the tests notice: `make breaks`.

Each break is one edit of a copy of the sources; the fast tests that should notice are then run
against the copy. A break that no test notices, or one whose text is no longer in the sources, fails
the script.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Break(NamedTuple):
    """An edit that makes the code wrong, and the tests that should notice.

    Files are in src/aisle and tests, unless they are in paper/ or applications/.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str


BREAKS = [
    Break(
        "accept/reject removed",
        "annealing/hmc.py",
        "is_accepted = jax.random.uniform(key, dtype=acceptance.dtype) < acceptance",
        "is_accepted = ~is_nonfinite",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "accept sign flipped",
        "annealing/hmc.py",
        "jnp.exp(jnp.minimum(-energy_change, 0))",
        "jnp.exp(jnp.minimum(energy_change, 0))",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "kernel at the old temperature",
        "annealing/ais.py",
        "betas, step_sizes = ladder.betas[1 : number + 1],",
        "betas, step_sizes = ladder.betas[:number],",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "weight taken after the move",
        "annealing/ais.py",
        "walk.log_ratio_before, log_ratio(end.point)",
        "walk.log_ratio_after, log_ratio(end.point)",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "second half-kick missing",
        "annealing/hmc.py",
        "    momentum = kick(momentum, gradient(point, beta), step_size / 2)\n    return",
        "    return",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "momentum not negated on rejection",
        "annealing/hmc.py",
        "for s in (proposed, _negate(state)))",
        "for s in (proposed, state))",
        "annealing/test_hmc.py::test_momentum_is_negated_on_rejection_and_kept_on_acceptance",
    ),
    Break(
        "preconditioner in the drift only",
        "annealing/hmc.py",
        "lambda v, g, s: v + size * s * g, momentum, grad, state.scale",
        "lambda v, g, s: v + size * g, momentum, grad, state.scale",
        "annealing/test_hmc.py::test_energy_error_of_leapfrog_is_of_order_two",
    ),
    Break(
        "one scale for all latents in the preconditioner",
        "annealing/hmc.py",
        "lambda s: s**self.precondition, path.scale",
        "lambda s: jnp.full_like(s, jnp.mean(s)) ** self.precondition, path.scale",
        "annealing/test_hmc.py::test_preconditioned_hmc_is_plain_hmc_in_units_of_the_scale",
    ),
    Break(
        "reverse run negates the momentum on one side only",
        "annealing/hmc.py",
        "self._refresh(key_momentum, _negate(moved)), info",
        "self._refresh(key_momentum, moved), info",
        "annealing/test_ais.py::test_the_reverse_run_is_the_reversal_of_the_forward_run",
    ),
    Break(
        "partial refresh does not keep the momentum's law",
        "annealing/hmc.py",
        "kept = (1 - self.refresh**2) ** 0.5",
        "kept = 1 - self.refresh",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "energy of the temperature before",
        "annealing/hmc.py",
        "energy_change = energy_proposed - energy(state, beta)",
        "energy_change = energy_proposed - energy(state, 0.8 * beta)",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "first weight added twice, last one never (Algorithm 1 as printed)",
        "annealing/ais.py",
        "    log_weight = jnp.sum(times(jnp.diff(betas), ratios))",
        "    deltas = jnp.diff(betas)\n"
        "    log_weight = jnp.sum(times(deltas[:-1], ratios[:-1])) + deltas[0] * ratios[0]",
        "annealing/test_ais.py::test_forward_weights_average_to_the_normaliser",
    ),
    Break(
        "a non-finite proposal is accepted",
        "annealing/hmc.py",
        "jnp.where(is_nonfinite, 0, jnp.exp",
        "jnp.where(is_nonfinite, 1, jnp.exp",
        "annealing/test_hmc.py::test_a_nonfinite_energy_is_rejected_and_counted",
    ),
    Break(
        "one gradient more than needed",
        "annealing/hmc.py",
        "gradient(state.point, beta), step_size / 2)",
        "gradient(evaluate(path, state.z), beta), step_size / 2)",
        "annealing/test_cost.py::test_gradients_and_values_per_chain",
    ),
    Break(
        "step sizes move away from the target acceptance",
        "annealing/tuning.py",
        "jnp.where(acceptance > target, factor, 2 - factor)",
        "jnp.where(acceptance < target, factor, 2 - factor)",
        "annealing/test_tuning.py::test_nudge_follows_the_papers_rule",
    ),
    Break(
        "a kernel with a list of temperatures cannot be hashed",
        "annealing/kernel.py",
        'object.__setattr__(self, "schedule", tuple(betas.tolist()))',
        'object.__setattr__(self, "schedule", betas.tolist())',
        "test_objects.py",
    ),
    Break(
        "an object does not print as it is typed",
        "objects.py",
        'return f"aisle.{type(self).__name__}({inside})"',
        'return f"{type(self).__name__}({inside})"',
        "test_objects.py",
    ),
    Break(
        "the certificate's reverse run refreshes the momentum otherwise",
        "evaluation/examples.py",
        "anneal_reverse(key, z, q, density, long)",
        "anneal_reverse(key, z, q, density, "
        "type(long)(long.betas, long.step_sizes, type(long.transition)(2), False))",
        "evaluation/test_log_likelihood.py",
    ),
    Break(
        "reverse chains all start at the exact sample",
        "evaluation/examples.py",
        "long = ladder.lengthened(num_more_moves(len(ladder.step_sizes)))",
        "long = ladder",
        "evaluation/test_log_likelihood.py::test_the_certificate_is_of_the_reported_kernel_in_both_directions",
    ),
    Break(
        "moves before a reverse run are not at the posterior",
        "annealing/ais.py",
        "jnp.append(betas, jnp.ones(num_moves, betas.dtype)),",
        "jnp.append(betas, jnp.full(num_moves, 0.8, betas.dtype)),",
        "annealing/test_ais.py::test_moves_at_the_posterior_before_a_reverse_run_leave_crooks_relation_as_it_is",
    ),
    Break(
        "a reverse chain is added to all forward ones",
        "evaluation/bounds.py",
        "np.logaddexp(_without_each(up)[:, :, None], down[:, None, :])",
        "np.logaddexp(np.logaddexp.reduce(up, axis=1)[:, None, None], down[:, None, :])",
        "evaluation/test_bounds.py::test_both_bounds_hold_in_mean_exactly",
    ),
    Break(
        "the upper bound is a mean of W",
        "evaluation/bounds.py",
        "return -lower_bounds(-totals.reshape(len(up), -1)) - np.log(up.shape[1])",
        "return lower_bounds(totals.reshape(len(up), -1)) - np.log(up.shape[1])",
        "evaluation/test_bounds.py::test_both_bounds_hold_in_mean_exactly",
    ),
    Break(
        "temperatures are placed on a schedule of the user's own",
        "evaluation/task.py",
        "if kernel.schedule is not schedules.sigmoid:",
        "if not callable(kernel.schedule):",
        "evaluation/test_rounds.py::test_temperatures_are_placed_by_a_pilot_of_their_own",
    ),
    Break(
        "step sizes are those of the temperatures before they were placed",
        "evaluation/task.py",
        "return tuned(task.scheduled(schedule))",
        "return task.scheduled(schedule)",
        "evaluation/test_rounds.py::test_temperatures_are_placed_by_a_pilot_of_their_own",
    ),
    Break(
        "temperatures are dense where nothing is lost",
        "annealing/schedules.py",
        "place = np.append(0, np.cumsum(density * widths))",
        "place = np.append(0, np.cumsum(widths / density))",
        "annealing/test_schedules.py::test_placed_steps_lose_the_same",
    ),
    Break(
        "the pilot makes more rounds than it counts",
        "evaluation/pilot.py",
        ", target=target, num_rounds=NUM_ROUNDS)",
        ", target=target)",
        "evaluation/test_pilot.py",
    ),
    Break(
        "importance sampling of other examples than were annealed",
        "evaluation/rounds.py",
        "jax.tree.map(lambda a: a[done], task.x)",
        "jax.tree.map(lambda a: a[: len(result.indices)], task.x)",
        "evaluation/test_rounds.py",
    ),
    Break(
        "a folder takes models of other static fields for the same",
        "evaluation/folders.py",
        'f"{jax.tree.structure(tree)} {functions}"',
        'f"{functions}"',
        "evaluation/test_log_likelihood.py::test_a_folder_is_of_one_model_to_its_classes_and_static_fields",
    ),
    Break(
        "a folder takes models of other functions for the same",
        "evaluation/folders.py",
        'f"{jax.tree.structure(tree)} {functions}"',
        'f"{jax.tree.structure(tree)}"',
        "evaluation/test_log_likelihood.py::test_a_folder_is_of_one_model_to_its_classes_and_static_fields",
    ),
    Break(
        "doubly reparameterised gradient without the square",
        "learning/methods.py",
        "phi = -jnp.sum(times(weights**2, log_weights))",
        "phi = -jnp.sum(times(weights, log_weights))",
        "learning/methods/test_contract.py::test_gradients_equal_those_over_constant_draws_and_weights",
    ),
    Break(
        "bound of a VAE by importance weights",
        "learning/methods.py",
        "_without_chains(jnp.mean(log_weights), log_weights)",
        "_without_chains(log_mean_exp(log_weights), log_weights)",
        "learning/methods/test_contract.py::test_the_bound_of_a_vae_is_the_elbo",
    ),
    Break(
        "the target acceptance is ignored in training",
        "learning/methods.py",
        "target=self.kernel.target_accept,",
        "target=0.6,",
        "learning/methods/test_contract.py::test_step_sizes_move_towards_the_target",
    ),
    Break(
        "a weight of zero makes the loss NaN",
        "learning/methods.py",
        "return -jnp.sum(times(weights, _log_joints(model, x, stop(z))))",
        "return -jnp.sum(weights * _log_joints(model, x, stop(z)))",
        "learning/methods/test_contract.py::test_a_sample_of_weight_zero_has_no_say_in_the_losses",
    ),
    Break(
        "a method with chains is validated by importance sampling",
        "learning/looks.py",
        'bound: Callable[..., Scalar] = getattr(method, "bound", _importance)',
        "bound: Callable[..., Scalar] = _importance",
        "learning/test_looks.py::test_the_bound_of_chains_is_by_chains",
    ),
    Break(
        "validation draws with the key of an update",
        "learning/plan.py",
        "jax.random.fold_in(root, 2**32 - 1)",
        "jax.random.fold_in(root, 7)",
        "learning/test_plan.py::test_validation_shares_no_key_with_any_update",
    ),
    Break(
        "rates and batches disagree on an epoch",
        "learning/plan.py",
        "bounder, feeder.updates_per_epoch, start, end)",
        "bounder, math.ceil(len(split) / plan.batch_size), start, end)",
        "learning/test_plan.py::test_rates_and_batches_agree_on_an_epoch_where_examples_are_left_over",
    ),
    Break(
        "small data get as few updates as 100 epochs have",
        "learning/plan.py",
        "usual = max(_USUAL_EPOCHS * per_epoch, _LEAST_UPDATES)",
        "usual = _USUAL_EPOCHS * per_epoch",
        "learning/test_plan.py::test_training_has_a_hundred_epochs_or_five_thousand_updates",
    ),
    Break(
        "what is frozen is trained",
        "learning/plan.py",
        "replace_fn=lambda part: jax.tree.map(lambda _: False, part),",
        "replace_fn=lambda part: part,",
        "learning/test_fit.py::test_what_is_frozen_stays_as_it_is",
    ),
    Break(
        "missing values count",
        "models/latent.py",
        "return jnp.sum(jnp.where(is_observed, terms, 0))",
        "return jnp.sum(terms)",
        "models/test_context.py::test_what_is_missing_drops_out_with_its_gradient",
    ),
    Break(
        "an encoder sees what is missing",
        "models/latent.py",
        "x = jnp.where(self.context.is_observed.ravel(), floats(x), jnp.nan)",
        "x = floats(x)",
        "models/test_context.py::test_an_encoder_sees_what_is_observed_and_nothing_else",
    ),
    Break(
        "the certificate simulates in another context than it anneals in",
        "evaluation/examples.py",
        "z = model.sample_prior(key_z)\n    x = model.sample_observation(key_x, z)",
        "z = shared[0].sample_prior(key_z)\n    x = shared[0].sample_observation(key_x, z)",
        "evaluation/test_context.py::test_both_directions_average_to_the_closed_form",
    ),
    Break(
        "the certificate takes the contexts of the first examples only",
        "evaluation/task.py",
        "a[order[numbers % len(order)]]",
        "a[numbers % 10]",
        "evaluation/test_context.py::"
        "test_the_certificate_speaks_of_data_in_the_contexts_of_real_ones",
    ),
    Break(
        "imputations ignore what was observed",
        "evaluation/imputation.py",
        "values = jax.vmap(own.sample_observation)(keys, own_zs)",
        "values = jax.vmap(own.sample_observation)(keys, jnp.zeros_like(own_zs))",
        "evaluation/test_imputation.py::test_draws_have_the_conditional_mean_and_covariance",
    ),
    Break(
        "weights of examples are ignored",
        "learning/updates.py",
        "losses = jax.tree.map(lambda a: weights * a, losses)",
        "losses = jax.tree.map(lambda a: a, losses)",
        "learning/test_context.py::test_a_weight_of_a_whole_number_is_so_many_copies",
    ),
    Break(
        "integers reach the model as floats",
        "learning/batches.py",
        "rows = split.with_context(split.take(every), every)",
        "rows = jax.tree.map(np.float32, split.take(every))",
        "learning/test_fit.py::test_examples_are_any_pytree_and_keep_their_types",
    ),
    Break(
        "the last weights returned instead of their average",
        "learning/loop.py",
        "return state.params if state.average is None else state.average",
        "return state.params",
        "learning/test_fit.py::test_averaged_weights_are_those_that_are_measured_and_returned",
    ),
    Break(
        "the last weights returned instead of the best",
        "learning/loop.py",
        "arrays = current(state) if best is None or best.weights is None else best.weights",
        "arrays = current(state)",
        "learning/test_fit.py::test_callbacks_look_after_each_epoch_and_early_stopping_ends_training",
    ),
    Break(
        "a callback cannot end training",
        "learning/loop.py",
        "is_over = self._call(look, state)",
        "self._call(look, state)",
        "learning/test_fit.py::test_callbacks_look_after_each_epoch_and_early_stopping_ends_training",
    ),
    Break(
        "a diverged run passes for trained",
        "learning/loop.py",
        "        if not signal_number:\n            _check_converged(history)\n",
        "",
        "learning/test_fit.py::test_training_without_one_finite_bound_is_a_failure",
    ),
    Break(
        "SIGTERM returns to the program",
        "learning/loop.py",
        "if signal_number == signal.SIGTERM:",
        "if False:",
        "learning/test_fit.py::test_sigterm_ends_the_program_after_a_checkpoint",
    ),
    Break(
        "a run that is past its first phase ends when it is resumed",
        "learning/loop.py",
        "            if update >= stage.end:\n                continue",
        "            if update >= stage.end:\n                return",
        "learning/test_resuming.py::test_a_run_of_two_phases_resumes_bit_for_bit",
    ),
    Break(
        "a run resumed between two phases keeps the states of the first",
        "learning/loop.py",
        "is_new, begin = update == begin and update > 0, stage.end",
        "is_new, begin = update == begin and update > first, stage.end",
        "learning/test_resuming.py::test_a_run_of_two_phases_resumes_bit_for_bit",
    ),
    Break(
        "step sizes are not restored",
        "runs/recorder.py",
        "return None if found is None else found[1]",
        "if found is None:\n"
        "            return None\n"
        "        state = found[1].state._replace(method=like(found[0]).state.method)\n"
        "        return found[1]._replace(state=state)",
        "learning/test_resuming.py::test_a_run_of_two_phases_resumes_bit_for_bit",
    ),
    Break(
        "the average of the weights is not restored",
        "runs/recorder.py",
        "return None if found is None else found[1]",
        "if found is None:\n"
        "            return None\n"
        "        state = found[1].state._replace(average=found[1].state.params)\n"
        "        return found[1]._replace(state=state)",
        "learning/test_resuming.py::test_a_run_of_two_phases_resumes_bit_for_bit",
    ),
    Break(
        "the best weights are not restored",
        "runs/recorder.py",
        "return None if found is None else found[1]",
        "return None if found is None else found[1]._replace(best=like(found[0]).best)",
        "learning/test_resuming.py::test_a_run_of_two_phases_resumes_bit_for_bit",
    ),
    Break(
        "averaged weights keep the first ones",
        "learning/updates.py",
        "_newest_share(step.average, state))",
        "1 - step.average)",
        "learning/test_updates.py::test_updates_that_are_not_finite_are_skipped_and_counted",
    ),
    Break(
        "densities with an axis too many are broadcast",
        "models/joint.py",
        "        if np.shape(value):",
        "        if False:",
        "models/test_joint.py",
    ),
    Break(
        "a lead that the gap may swallow counts",
        "statistics.py",
        "gain.mean - np.maximum(gap.mean, 0.0) > CLEAR * error",
        "gain.mean > CLEAR * error",
        "test_statistics.py",
    ),
    Break(
        "a table reports the subset where the whole split was estimated",
        "paper/core/runs.py",
        "found.whole_split or found.estimate,",
        "found.estimate,",
        "paper/tests/core/test_runs.py::test_a_table_reports_the_whole_split_where_it_was_estimated",
    ),
    Break(
        "another training of the same shapes computes with the first one's constants",
        "learning/updates.py",
        "return partial(program, processes.place(constants, jax.NamedSharding(mesh, jax.P())))",
        "return remembered((bare, mesh, batch_size, 0), lambda: partial(program, constants))",
        "learning/test_fit.py::test_training_is_compiled_once_and_not_again_for_the_same_shapes",
    ),
    Break(
        "a second training compiles again",
        "learning/updates.py",
        "program = remembered((bare, mesh, batch_size), lambda: _compile(bare, mesh, batch_size))",
        "program = _compile(bare, mesh, batch_size)",
        "learning/test_fit.py::test_training_is_compiled_once_and_not_again_for_the_same_shapes",
    ),
    Break(
        "a tolerance is reached by a lucky gap",
        "evaluation/rounds.py",
        "return max(gap.mean + CLEAR * gap.standard_error, abs(change or 0.0))",
        "return max(gap.mean, abs(change or 0.0))",
        "evaluation/test_rounds.py::test_noise_of_the_gap_is_met_by_more_examples_and_not_by_temperatures",
    ),
    Break(
        "a tolerance looks at simulated examples only",
        "evaluation/rounds.py",
        "return max(gap.mean + CLEAR * gap.standard_error, abs(change or 0.0))",
        "return gap.mean + CLEAR * gap.standard_error",
        "evaluation/test_rounds.py::test_the_change_is_from_half_of_the_chains_to_all",
    ),
    Break(
        "a plan forgets that the gap has an error",
        "evaluation/planning.py",
        "needed = CLEAR**2 * variance / (wanted - mean) ** 2 if mean < wanted else fewest",
        "needed = fewest",
        "evaluation/test_planning.py",
    ),
    Break(
        "a plan takes spreads for what they were at another T",
        "evaluation/planning.py",
        "spreads = self.spreads * (self.num_temperatures / num_temperatures) ** self.power",
        "spreads = self.spreads",
        "evaluation/test_planning.py",
    ),
    Break(
        "a later round has the draws that it was planned by",
        "evaluation/task.py",
        "return jax.random.fold_in(jax.random.fold_in(root, number), purpose)",
        "return jax.random.fold_in(jax.random.fold_in(root, 0), purpose)",
        "evaluation/test_rounds.py::test_rounds_share_no_draws_and_no_examples_of_the_pilot",
    ),
    Break(
        "refitting begins anew after a kill",
        "evaluation/refitting.py",
        'first, before = int(stored["number"]), float(stored["seconds"])',
        "pass",
        "evaluation/test_refitting.py::test_refitting_that_was_killed_goes_on",
    ),
    Break(
        "the shape of a tail is that of all weights",
        "evaluation/diagnostics.py",
        "return _shapes(weights[:, 1:] - weights[:, :1])",
        "return _shapes(weights[:, 1:])",
        "evaluation/test_diagnostics.py::test_shapes_of_pareto_laws_are_found",
    ),
    Break(
        "a second evaluation compiles again",
        "compilation.py",
        "    if whole not in _PROGRAMS:",
        "    if True:",
        "evaluation/test_compiled_once.py",
    ),
    Break(
        "an evaluation computes with an object as it was",
        "compilation.py",
        "if may_change(key) or not _is_hashable(whole):",
        "if not _is_hashable(whole):",
        "evaluation/test_compiled_once.py",
    ),
    Break(
        "whole numbers become single precision",
        "evaluation/log_likelihood.py",
        "    return tree.map(np.asarray, xs), example\n",
        "    return tree.map(np.float32, xs), example\n",
        "evaluation/test_types.py",
    ),
    Break(
        "bytes are grey values whoever they are",
        "data/view.py",
        "        if self.is_grey:\n",
        "        if self.is_grey or stored.dtype == jnp.uint8:\n",
        "data/test_view.py",
    ),
    Break(
        "whole numbers wrap",
        "data/values.py",
        "return (limits.min <= leaf) & (leaf <= limits.max)",
        "return np.ones(leaf.shape, bool) if is_whole else np.abs(leaf) <= limits.max",
        "data/test_values.py",
    ),
    Break(
        "held-out bits are of a place in the selection",
        "data/split.py",
        "self.numbers(indices).astype(np.int32)",
        "np.arange(len(indices), dtype=np.int32)",
        "data/test_view.py",
    ),
    Break(
        "bits of all arrays of an example are drawn with one key",
        "data/view.py",
        "(jax.random.fold_in(key, i) for i in range(1, len(leaves)))",
        "(key for _ in leaves[1:])",
        "data/test_view.py",
    ),
    Break(
        "a part called valid is not used",
        "data/arrays.py",
        'for n in ("train", "valid", "test") if n in names',
        'for n in ("train", "test") if n in names',
        "data/test_arrays.py",
    ),
    Break(
        "validation examples are training examples too",
        "data/split.py",
        "np.sort(order[number:]), np.sort(order[:number])",
        "np.sort(order), np.sort(order[:number])",
        "data/test_arrays.py",
    ),
    Break(
        "ranges of columns are judged by their median",
        "data/values.py",
        "if ranges[smallest] < _USUAL_RANGES[0] or ranges[largest] > _USUAL_RANGES[1]:",
        "if not _USUAL_RANGES[0] <= np.median(ranges) <= _USUAL_RANGES[1]:",
        "data/test_values.py",
    ),
    Break(
        "a mask is lost",
        "data/values.py",
        "np.ma.count_masked(leaf) if isinstance(leaf, np.ma.MaskedArray) else 0",
        "0",
        "data/test_values.py",
    ),
    Break(
        "step sizes are tuned on test data",
        "runs/evaluating.py",
        'dataset.valid if config.split == "train" else dataset.train',
        'dataset.valid if config.split == "train" else dataset.test',
        "runs/test_evaluating.py",
    ),
    Break(
        "every draw from the posterior is one of the proposal",
        "evaluation/posterior.py",
        "z = q.sample(keys[index])",
        "z = q.sample(jax.random.split(key_choice, num_samples)[index])",
        "evaluation/test_posterior.py",
    ),
    Break(
        "draws from the posterior by other weights",
        "evaluation/posterior.py",
        "return run.z, run.log_weight",
        "return run.z, 0.0 * run.log_weight",
        "evaluation/test_posterior.py",
    ),
    Break(
        "refitting looks at the samples of the proposal alone",
        "evaluation/refitting.py",
        "return upper - lower",
        "return -lower",
        "evaluation/test_refitting.py",
    ),
    Break(
        "chains start from the proposal as it was",
        "evaluation/log_likelihood.py",
        "start = refitted(task, number) if number else task",
        "start = task",
        "evaluation/test_refitting.py",
    ),
    Break(
        "an object that was changed is computed with as it was",
        "compilation.py",
        "    return not (is_value or is_function or is_frozen)",
        "    return False",
        "test_compilation.py",
    ),
    Break(
        "a damaged checkpoint is taken for whole",
        "runs/tensors.py",
        "!= _digest(tensors, about) and is_checked:",
        "!= _digest(tensors, about) and not about:",
        "runs/test_checkpoints.py",
    ),
    Break(
        "values of a file are divided by 255 unasked",
        "runs/options/train.py",
        "is_grey = seen.grey or not is_file_name(self.data)",
        "is_grey = True",
        "runs/test_options.py",
    ),
    Break(
        "options that a method has no use for are ignored",
        "runs/options/groups.py",
        "        if given:\n",
        "        if False:\n",
        "runs/test_options.py",
    ),
    Break(
        "conditions reach the networks as they are",
        "models/latent.py",
        "seen = values if part.conditions is None else part.conditions.standardise(values)",
        "seen = values if part.conditions is None else 0 * part.conditions.standardise(values)",
        "models/test_context.py::test_conditions_are_standardised_inside",
    ),
    Break(
        "first rates of counts ignore exposures",
        "runs/forms.py",
        "return lambda x: family.fitted(x, exposure)",
        "return lambda x: family.fitted(x)",
        "runs/test_networks.py::test_conditions_and_exposures_are_part_of_the_form",
    ),
    Break(
        "a line of a table is counted without empty ones",
        "data/cells.py",
        "numbered = [(reader.line_num, row) for row in reader if row]",
        "numbered = list(enumerate((row for row in reader if row), 1))",
        "data/test_roles.py::test_lines_are_those_of_the_file",
    ),
    Break(
        "rows are completed by the draws of others",
        "runs/tables.py",
        "with_gaps = {int(row): k for k, row in enumerate(rows)}",
        "with_gaps = {int(row): 0 for k, row in enumerate(rows)}",
        "runs/test_tables.py::test_gaps_have_the_draws_of_their_rows",
    ),
    Break(
        "weights are chosen by test data",
        "runs/training.py",
        "options, valid = config.run, dataset.valid",
        "options, valid = config.run, dataset.test",
        "runs/test_training.py",
    ),
    Break(
        "a run that is extended gets other phases",
        "runs/training.py",
        "ends[-1] if ends else plan.length(number)",
        "plan.length(number)",
        "runs/test_training.py",
    ),
    Break(
        "a run is opened with its last weights instead of the best",
        "runs/opening.py",
        '_PARTS = ("best/weights", ',
        "_PARTS = (",
        "runs/test_fitting.py",
    ),
    Break(
        "step sizes are tuned on the examples that are evaluated",
        "runs/evaluating.py",
        'dataset.valid if config.split == "train" else dataset.train',
        "split",
        "cli/evaluate/test_options.py",
    ),
    Break(
        "examples that a run was trained on count as held out",
        "runs/evaluating.py",
        "if is_one_array and dataset.test.digest() != held_out_before:",
        "if is_one_array:",
        "cli/evaluate/test_options.py",
    ),
    Break(
        "latents are coloured by the labels of other rows",
        "report/labelling.py",
        "labels.codes[held_out.numbers(chosen)]",
        "labels.codes[chosen]",
        "report/test_labelling.py",
    ),
    Break(
        "a model decides the bars that it is judged by",
        "report/columns.py",
        "compared(column, bars_of(column, values), values,",
        "compared(column, bars_of(column, samples[2][:, i]), values,",
        "report/test_columns.py",
    ),
    Break(
        "correlations take what is missing for the mean",
        "report/columns.py",
        "here = is_known.astype(float)",
        "here = np.ones_like(ranks)",
        "report/test_columns.py",
    ),
    Break(
        "a row's draws depend on its place",
        "evaluation/rows.py",
        "_key([leaf[i] for leaf in leaves], seed)",
        "_key([np.asarray(i)], seed)",
        "estimator/test_estimator.py::test_scores_depend_on_a_rows_content_alone",
    ),
    Break(
        "identical rows count once whatever their weights",
        "estimator/columns.py",
        "total = np.bincount(place.ravel(), weights[weights > 0])",
        "total = np.ones(len(first))",
        "estimator/test_estimator.py::test_rows_are_counted_whatever_the_bits_of_nan_and_zero",
    ),
    Break(
        "the encoder of factor analysis has the prior's scale",
        "estimator/starting.py",
        "= -0.5 * np.log(precision)",
        "= 0.0",
        "estimator/test_estimator.py::test_the_start_is_factor_analysis",
    ),
    Break(
        "more factors than usual whatever they gain",
        "estimator/starting.py",
        "scores[best] > scores[fewer] + _WORTH",
        "scores[best] > scores[fewer]",
        "estimator/test_estimator.py::test_the_number_of_factors_is_chosen_by_what_is_held_out",
    ),
    Break(
        "step sizes of scores move away from the target acceptance",
        "evaluation/rows.py",
        "found[4].mean(axis=0) - target",
        "target - found[4].mean(axis=0)",
        "estimator/test_estimator.py::test_step_sizes_reach_the_target",
    ),
    Break(
        "a last phase may end below its start",
        "learning/loop.py",
        "found = _better(best, held_out, arrays, self._begin, phase)",
        "found = best",
        "learning/test_fit.py::test_a_phase_that_gains_nothing_leaves_what_it_started_from",
    ),
    Break(
        "a comparison is not paired",
        "evaluation/comparing.py",
        "behind = summarise(best - log_p)",
        "behind = summarise(best - log_p[::-1])",
        "evaluation/test_comparing.py",
    ),
    Break(
        "latents of NumPyro without the volume of their transform",
        "models/doors/sites.py",
        "return value, jnp.sum(transform.log_abs_det_jacobian(inside, value))",
        "return value, jnp.zeros(())",
        "doors/test_numpyro.py::test_unconstrained_densities_have_the_volume",
    ),
    Break(
        "arrays of an archive are believed before they are read",
        "data/readers.py",
        "if promised != held:",
        "if False:",
        "test_hostile.py::TestArchives::test_a_header_that_promises_more_than_follows",
    ),
    Break(
        "the card takes evaluations of other weights",
        "report/card.py",
        "if each.update in (opened.update, None) and",
        "if",
        "report/test_card.py::test_the_card_says_what_the_run_knows",
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
]


def main() -> int:
    """Apply each break in turn; return 1 if any goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="breaks whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="breaks that are tried at once")
    options = parser.parse_args()
    only, jobs = options.only, options.jobs
    chosen = [b for b in BREAKS if only in b.name]
    if not chosen:
        parser.error(f"--only {only} is in no break's name")
    print(f"{'unbroken':66s}", end=" ", flush=True)
    status = _run(None, sorted({item.tests for item in chosen}))
    print(status)
    unnoticed = [] if status == "tests pass" else ["unbroken sources fail"]
    with ThreadPoolExecutor(jobs) as pool:
        for item, status in zip(
            chosen, pool.map(lambda item: _run(item, [item.tests]), chosen), strict=True
        ):
            print(f"{item.name:66s} {status}", flush=True)
            unnoticed += [] if status.startswith("caught") else [item.name]
    print(f"{len(chosen)} breaks, {len(unnoticed)} unnoticed")
    return 1 if unnoticed else 0


def _run(item: Break | None, tests: list[str]) -> str:
    """Return 'tests pass', or the first test that failed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "paper", "applications", "conftest.py", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        if item is not None:
            _apply(item, copy / _in_repository(item.file, "src/aisle"))
        start = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
        command += [_in_repository(name, "tests") for name in tests]
        # The copy must win over the installed package.
        environment = os.environ | {"PYTHONPATH": str(copy / "src")}
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
    if done.returncode == 0:
        return "tests pass"
    failed = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        return f"tests did not run: {done.stdout[-500:]}"
    return f"caught in {seconds:3.0f} s by {failed.group(1)}"


def _in_repository(name: str, usual: str) -> str:
    return name if name.startswith(("paper/", "applications/")) else f"{usual}/{name}"


def _apply(item: Break, path: Path) -> None:
    text = path.read_text()
    if text.count(item.old) != 1:
        sys.exit(f"{item.name}: its text stands {text.count(item.old)} times in {item.file}, not 1")
    path.write_text(text.replace(item.old, item.new))


if __name__ == "__main__":
    sys.exit(main())
