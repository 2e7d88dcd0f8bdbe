"""Breaks of runs on disk."""

from scripts.breaks.item import Break

BREAKS = [
    Break(
        "a start costs no time",
        "runs/timing.py",
        "seconds - warmup * costs[0]",
        "seconds",
        "runs/test_timing.py::test_a_start_of_so_many_updates_leaves_the_rest_to_the_other_phases",
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
        "step sizes are tuned on test data",
        "runs/evaluating.py",
        'dataset.valid if config.split == "train" else dataset.train',
        'dataset.valid if config.split == "train" else dataset.test',
        "runs/test_evaluating.py",
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
        "first rates of counts ignore exposures",
        "runs/forms.py",
        '{"exposure": context.exposure} for n',
        "{} for n",
        "runs/test_networks.py::test_conditions_and_exposures_are_part_of_the_form",
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
        "hours count phases alike, whatever their share",
        "runs/timing.py",
        "weights=[phase.share for phase in phases[first:]]",
        "weights=None",
        "runs/test_timing.py",
    ),
]
