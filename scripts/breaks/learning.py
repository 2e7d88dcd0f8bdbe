"""Breaks of training."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "a run that early stopping ended is trained on",
        "learning/loop.py",
        "return any(int(best.num_since) >= number for number in patience)",
        "return False",
        "learning/test_resuming.py::test_a_run_that_early_stopping_ended_is_not_trained_on",
    ),
    Break(
        "doubly reparameterised gradient without the square",
        "learning/methods.py",
        "phi = -jnp.sum(times(weights**2, log_weights))",
        "phi = -jnp.sum(times(weights, log_weights))",
        "learning/methods/test_contract.py::"
        "test_gradients_equal_those_over_constant_draws_and_weights",
    ),
    Break(
        "bound of a VAE by importance weights",
        "learning/methods.py",
        "_without_chains(jnp.mean(log_weights), log_weights)",
        "_without_chains(log_mean_exp(log_weights), log_weights)",
        "learning/methods/test_contract.py::test_the_bound_of_a_vae_is_the_elbo",
    ),
    Break(
        "weights decay whatever the rate",
        "learning/optimizers.py",
        "optax.add_decayed_weights(self.weight_decay, _matrices)",
        "optax.add_decayed_weights(1 + self.weight_decay, _matrices)",
        "learning/test_optimizers.py::"
        "test_decay_shrinks_matrices_by_a_share_of_the_rate_and_nothing_else",
    ),
    Break(
        "theta learns through the rounded decoder",
        "learning/methods.py",
        "theta = _weighted(model, x, run.z, weights)",
        "theta = _weighted(walked, x, run.z, weights)",
        "learning/methods/test_precision.py",
    ),
    Break(
        "chains walk on the exact decoder whatever the precision",
        "learning/methods.py",
        'rounded(model) if self.precision == "bfloat16" else model',
        "model",
        "learning/methods/test_precision.py",
    ),
    Break(
        "a rounded product that multiplies its gradient by other weights",
        "models/networks.py",
        "return _product(gradient, weight), jnp",
        "return _product(gradient, -weight), jnp",
        "learning/methods/test_precision.py",
    ),
    Break(
        "theta learns from the first states of a chain",
        "learning/methods.py",
        "a[:, -number:].reshape",
        "a[:, :number].reshape",
        "learning/methods/test_contract.py::"
        "test_gradients_equal_those_over_constant_draws_and_weights",
    ),
    Break(
        "longer chains have one state",
        "learning/methods.py",
        "max(1, min(states, one.most_states))",
        "1",
        "runs/test_options.py::"
        "test_longer_chains_have_no_more_states_than_there_are_at_the_posterior",
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
        "learning/preparing.py",
        "jax.random.fold_in(jax.random.key(plan.seed), 2**32 - 1)",
        "jax.random.fold_in(jax.random.key(plan.seed), 7)",
        "learning/test_plan.py::test_validation_shares_no_key_with_any_update",
    ),
    Break(
        "rates and batches disagree on an epoch",
        "learning/preparing.py",
        "bounder, feeder.updates_per_epoch)",
        "bounder, math.ceil(len(split) / plan.batch_size))",
        "learning/test_plan.py::"
        "test_rates_and_batches_agree_on_an_epoch_where_examples_are_left_over",
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
        "learning/preparing.py",
        "replace_fn=lambda part: jax.tree.map(lambda _: False, part),",
        "replace_fn=lambda part: part,",
        "learning/test_fit.py::test_what_is_frozen_stays_as_it_is",
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
        "arrays = current(state) if kept is None else kept",
        "arrays = current(state)",
        "learning/test_fit.py::"
        "test_callbacks_look_after_each_epoch_and_early_stopping_ends_training",
    ),
    Break(
        "a callback cannot end training",
        "learning/loop.py",
        "is_over = any(answers)",
        "any(answers)",
        "learning/test_fit.py::"
        "test_callbacks_look_after_each_epoch_and_early_stopping_ends_training",
    ),
    Break(
        "a diverged run passes for trained",
        "learning/loop.py",
        "        if not signal_number:\n            check_converged(history)\n",
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
        "if 0 < update == stage.begin:",
        "if first < update == stage.begin:",
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
        "another training of the same shapes computes with the first one's constants",
        "learning/updates.py",
        "return partial(program, processes.place(constants, jax.NamedSharding(mesh, jax.P())))",
        "return remembered((bare, mesh, batch_size, 0), lambda: partial(program, constants))",
        "learning/test_fit.py::test_training_is_compiled_once_and_not_again_for_the_same_shapes",
    ),
    Break(
        "a second training compiles again",
        "learning/updates.py",
        "(bare, mesh, batch_size, is_quick), lambda: _compile",
        "(bare, mesh, batch_size, object()), lambda: _compile",
        "learning/test_fit.py::test_training_is_compiled_once_and_not_again_for_the_same_shapes",
    ),
    Break(
        "a last phase may end below its start",
        "learning/loop.py",
        "found = best.after(self._bound(stage, arrays, state), arrays, stage.begin, stage.number)",
        "found = best",
        "learning/test_fit.py::test_a_phase_that_gains_nothing_leaves_what_it_started_from",
    ),
    Break(
        "the start of a phase keeps the bound of its first step sizes",
        "learning/loop.py",
        "best = best._replace(bound=np.float32(start.mean))",
        "best._replace(bound=np.float32(start.mean))",
        "learning/test_fit.py::test_the_start_of_a_phase_is_bounded_as_what_it_is_compared_with",
    ),
    Break(
        "Muon forgets the shape of a matrix",
        "learning/optimizers.py",
        "scale = max(1.0, rows / columns) ** 0.5",
        "scale = 1.0",
        "learning/test_optimizers.py::"
        "test_muon_makes_the_singular_values_of_averaged_gradients_alike",
    ),
    Break(
        "Muon follows the singular values, not their squares",
        "learning/optimizers.py",
        "gram = now @ gram @ now",
        "gram = now @ gram",
        "learning/test_optimizers.py::"
        "test_muon_makes_the_singular_values_of_averaged_gradients_alike",
    ),
]
