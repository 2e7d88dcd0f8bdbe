"""Break the code on purpose, and see the tests notice: `make breaks`.

Each break is one edit of a copy of the sources; the fast tests of what it breaks are then run
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
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Break(NamedTuple):
    """An edit that makes the code wrong, and the tests that should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str = "annealing"


BREAKS = [
    Break(
        "accept/reject removed",
        "annealing/hmc.py",
        "is_accepted = jax.random.uniform(key_accept, dtype=dtype) < acceptance",
        "is_accepted = ~is_nonfinite",
    ),
    Break(
        "accept sign flipped",
        "annealing/hmc.py",
        "jnp.exp(jnp.minimum(-energy_change, 0))",
        "jnp.exp(jnp.minimum(energy_change, 0))",
    ),
    Break(
        "kernel at the old temperature",
        "annealing/ais.py",
        "_Moves(jnp.arange(num_moves), betas[1 : num_moves + 1],",
        "_Moves(jnp.arange(num_moves), betas[:num_moves],",
    ),
    Break(
        "weight taken after the move",
        "annealing/ais.py",
        "walk.log_ratio_before, log_ratio(end.point)",
        "walk.log_ratio_after, log_ratio(end.point)",
    ),
    Break(
        "second half-kick missing",
        "annealing/hmc.py",
        "    momentum = kick(momentum, gradient(point, beta), step_size / 2)\n    return",
        "    return",
    ),
    Break(
        "momentum not negated on rejection",
        "annealing/hmc.py",
        "jnp.where(is_accepted, a, b), proposed, _negate(state))",
        "jnp.where(is_accepted, a, b), proposed, state)",
    ),
    Break(
        "preconditioner in the drift only",
        "annealing/hmc.py",
        "lambda v, g, s: v + size * s * g, momentum, grad, scale",
        "lambda v, g, s: v + size * g, momentum, grad, scale",
    ),
    Break(
        "reverse run negates the momentum on one side only",
        "annealing/hmc.py",
        "_refresh(key_momentum, _negate(moved), params.refresh)",
        "_refresh(key_momentum, moved, params.refresh)",
    ),
    Break(
        "partial refresh does not keep the momentum's law",
        "annealing/hmc.py",
        "kept = (1 - refresh**2) ** 0.5",
        "kept = 1 - refresh",
    ),
    Break(
        "energy of the temperature before",
        "annealing/hmc.py",
        "energy_change = energy_proposed - energy(state, beta)",
        "energy_change = energy_proposed - energy(state, 0.8 * beta)",
    ),
    Break(
        "first weight added twice, last one never (Algorithm 1 as printed)",
        "annealing/ais.py",
        "    log_weight = jnp.sum(times(jnp.diff(betas), ratios))",
        "    deltas = jnp.diff(betas)\n"
        "    log_weight = jnp.sum(times(deltas[:-1], ratios[:-1])) + deltas[0] * ratios[0]",
    ),
    Break(
        "a non-finite proposal is accepted",
        "annealing/hmc.py",
        "jnp.where(is_nonfinite, 0, jnp.exp",
        "jnp.where(is_nonfinite, 1, jnp.exp",
    ),
    Break(
        "one gradient more than needed",
        "annealing/hmc.py",
        "gradient(state.point, beta), step_size / 2)",
        "gradient(evaluate(path, state.z), beta), step_size / 2)",
    ),
    Break(
        "the certificate's reverse run refreshes the momentum otherwise",
        "annealing/kernel.py",
        "log_joint, *_plan(kernel), **_options(q, kernel))\n\n\ndef gradients_per_chain",
        'log_joint, *_plan(kernel), **_options(q, kernel) | {"refresh": 1.0})\n\n\n'
        "def gradients_per_chain",
        "evaluation/test_log_likelihood.py",
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
        "jax.tree.map(lambda a: a[done], plan.x)",
        "jax.tree.map(lambda a: a[: len(result.indices)], plan.x)",
        "evaluation/test_rounds.py",
    ),
    Break(
        "a folder takes models of other static fields for the same",
        "evaluation/log_likelihood.py",
        '"classes": digest_of_rest(networks),',
        "",
        "evaluation/test_log_likelihood.py",
    ),
    Break(
        "doubly reparameterised gradient without the square",
        "learning/estimators.py",
        "squares = stop(normalised_weights(log_weights)) ** 2",
        "squares = stop(normalised_weights(log_weights))",
        "learning/estimators/test_contract.py",
    ),
    Break(
        "bound of a VAE by importance weights",
        "learning/estimators.py",
        "_without_chains(jnp.mean(log_weights), log_weights)",
        "_without_chains(log_mean_exp(log_weights), log_weights)",
        "learning/estimators/test_contract.py",
    ),
    Break(
        "the last weights returned instead of their average",
        "learning/trainer.py",
        "processes.own_copy(best_params(state))",
        "processes.own_copy(state.params)",
        "learning/test_trainer.py",
    ),
    Break(
        "a run that is past its warm-up ends when it is resumed",
        "learning/loop.py",
        "            if update >= phase.end:\n                continue",
        "            if update >= phase.end:\n                return",
        "learning/test_resuming.py",
    ),
    Break(
        "a lead that the gap may swallow counts",
        "statistics.py",
        "gain.mean - np.maximum(gap.mean, 0.0) > CLEAR * error",
        "gain.mean > CLEAR * error",
        "experiments/test_claims.py",
    ),
    Break(
        "a tolerance is reached by a lucky gap",
        "evaluation/rounds.py",
        "return gap.mean + CLEAR * gap.standard_error",
        "return gap.mean",
        "evaluation/test_rounds.py",
    ),
    Break(
        "averaged weights keep the first ones",
        "learning/updates.py",
        "_newest_share(recipe.ema, state))",
        "1 - recipe.ema)",
        "learning/test_updates.py",
    ),
    Break(
        "densities with an axis too many are broadcast",
        "models/joint.py",
        "        if np.shape(value):",
        "        if False:",
        "models/test_joint.py",
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
        'refit_start(plan) if plan.settings["refit"] else plan',
        "plan",
        "evaluation/test_refitting.py",
    ),
    Break(
        "an object that was changed is computed with as it was",
        "compilation.py",
        "    return not (is_value or is_function)",
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
        "runs/options.py",
        "is_grey = seen.grey or not is_file_name(self.data)",
        "is_grey = True",
        "runs/test_options.py",
    ),
    Break(
        "options that a method has no use for are ignored",
        "runs/options.py",
        "        if given:\n",
        "        if False:\n",
        "runs/test_options.py",
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
        "a program that was asked to end goes on after fit",
        "learning/loop.py",
        "if signal_number == signal.SIGTERM:",
        "if signal_number == -1:",
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
        "a diverged run counts as trained",
        "learning/loop.py",
        "            _check_converged(history)\n",
        "            pass\n",
        "cli/test_train.py",
    ),
]


def main() -> int:
    """Apply each break in turn; return 1 if any goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="breaks whose name contains this text")
    only = parser.parse_args().only
    chosen = [b for b in BREAKS if only in b.name]
    if not chosen:
        parser.error(f"--only {only} is in no break's name")
    print(f"{'unbroken':66s}", end=" ", flush=True)
    status = _run(None, sorted({item.tests for item in chosen}))
    print(status)
    unnoticed = [] if status == "tests pass" else ["unbroken sources fail"]
    for item in chosen:
        print(f"{item.name:66s}", end=" ", flush=True)
        status = _run(item, [item.tests])
        print(status, flush=True)
        unnoticed += [item.name] if status == "tests pass" else []
    print(f"{len(chosen)} breaks, {len(unnoticed)} unnoticed")
    return 1 if unnoticed else 0


def _run(item: Break | None, tests: list[str]) -> str:
    """Return 'tests pass', or the first test that failed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        if item is not None:
            _apply(item, copy / "src/aisle" / item.file)
        start = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
        command += [f"tests/{name}" for name in tests]
        # The copy must win over the installed package.
        environment = os.environ | {"PYTHONPATH": str(copy / "src")}
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
    if done.returncode == 0:
        return "tests pass"
    failed = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
    return f"caught in {seconds:3.0f} s by {failed.group(1)}" if failed else done.stdout[-500:]


def _apply(item: Break, path: Path) -> None:
    text = path.read_text()
    if text.count(item.old) != 1:
        sys.exit(f"{item.name}: its text stands {text.count(item.old)} times in {item.file}, not 1")
    path.write_text(text.replace(item.old, item.new))


if __name__ == "__main__":
    sys.exit(main())
