"""What `aisle train` says of arguments and data that it cannot use."""

import numpy as np
import pytest

from commands import assert_mistake, run

BAD_OPTIONS = [
    (["--hours", "1", "--warmup-epochs", "-1"], "--warmup-epochs is -1: it must be at least 0"),
    (["--method", "nuts"], "nuts"),
    (["--optimizer", "sgd"], "sgd"),
    (["--schedule", "cubic"], "cubic"),
    (["--lr-schedule", "step"], "step"),
    (["--model", "three-layer"], "three-layer"),
    (["--likelihood", "normal"], "normal"),
    (["--proposal", "diagonal"], "--proposal"),
    (["--model", "nowhere:build"], "--model is 'nowhere:build' but nowhere cannot be imported"),
    (["--model", "math:build"], "--model is 'math:build' but math has no function 'build'"),
    (["--binarize", "maybe"], "maybe"),
    (["--likelihood", "gaussian", "--binarize", "static"], "--binarize is 'static' but likelihood"),
    (["--grey", "yes"], "yes"),
    (["--num-valid", "1500"], "1500 of 1500 examples"),
    (["--num-valid", "0", "--patience", "3"], "--patience is 3 but there are no validation data"),
    (["--patience", "0"], "--patience is 0"),
    (["--keep", "first"], "first"),
    (["-K", "0"], "--num-samples is 0"),
    (["-K", "-1"], "--num-samples is -1"),
    (["-T", "0"], "--num-temperatures is 0"),
    (["-T", "-2"], "--num-temperatures is -2"),
    (["-L", "0"], "--num-leapfrog is 0"),
    (["-L", "-1"], "--num-leapfrog is -1"),
    (["-K", "1.5"], "1.5"),
    (["--epochs", "0"], "--num-epochs is 0"),
    (["--epochs", "-3"], "--num-epochs is -3"),
    (["--batch-size", "0"], "--batch-size is 0"),
    (["--updates", "0"], "--num-updates is 0"),
    (["--hours", "0"], "--hours is 0"),
    (["--hours", "nan"], "--hours is nan"),
    (["--learning-rate", "0"], "--learning-rate is 0"),
    (["--learning-rate", "-1"], "--learning-rate is -1"),
    (["--learning-rate", "nan"], "--learning-rate is nan"),
    (["--learning-rate", "inf"], "--learning-rate is inf"),
    (["--ema", "1"], "--ema is 1"),
    (["--ema", "-0.1"], "--ema is -0.1"),
    (["--momentum-refresh", "0"], "--momentum-refresh is 0"),
    (["--momentum-refresh", "1.5"], "--momentum-refresh is 1.5"),
    (["--jitter", "1"], "--jitter"),
    (["--target-accept", "1.2"], "--target-accept is 1.2"),
    (["--target-accept", "0"], "--target-accept is 0"),
    (["--precondition", "-1"], "--precondition is -1"),
    (["--precondition", "inf"], "--precondition is inf"),
    (["--warmup-epochs", "3", "--epochs", "2"], "--warmup-epochs is 3"),
    (["--warmup-epochs", "-1"], "--warmup-epochs is -1"),
    (["--late-temperatures", "11"], "--late-temperatures is 11 but chains have 11 before"),
    (["--num-states", "0"], "--num-states is 0"),
    (["--num-states", "9"], "--num-states is 9 but"),
    (["--weight-decay", "inf"], "--weight-decay is inf"),
    (["--num-hidden", "0"], "--num-hidden is 0"),
    (["--num-latents", "0"], "--num-latents is 0"),
    (["--validate-every", "0"], "--validate-every is 0"),
    (["--keep-checkpoints", "0"], "--keep-checkpoints is 0"),
    (["--checkpoint-minutes", "nan"], "--checkpoint-minutes is nan"),
    (["--seed", "-1"], "--seed is -1"),
    (["--seed", str(2**80)], "--seed is"),
    (["--init-from", "nowhere"], "nowhere does not exist"),
    (["--init-from", "none.safetensors"], "none.safetensors does not exist: give a file that"),
    (["--no-such-option"], "--no-such-option"),
]


# Objects refuse them, which has tests of its own: of the way through the command, a third is fast.
@pytest.mark.parametrize(
    ("options", "words"),
    [pytest.param(*b, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, b in enumerate(BAD_OPTIONS)],
    ids=lambda a: a[0] if isinstance(a, list) else a,
)
def test_a_bad_option_costs_one_line_and_leaves_nothing(
    capsys, tmp_path, monkeypatch, no_training, options, words
):
    monkeypatch.chdir(tmp_path)
    result = run(capsys, "train", "digits", "--out", tmp_path / "run", *options)
    assert_mistake(result, words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (None, "data.npy"),
        (np.full((30, 4), np.nan, np.float32), "nan in row"),
        (np.full((30, 4), 1.5, np.float32), "needs values in [0, 1]"),
        (np.full((30, 4), -0.5, np.float32), "needs values in [0, 1]"),
        (np.zeros(30, np.float32), "(30,)"),
        (np.full((30, 4), 3, np.uint8), "values from 3 to 3: drawing bits needs values in [0, 1]"),
        (np.full((30, 4), 200, np.int64), "if these are grey values of 0 to 255, say so by --grey"),
        (np.array([[1, "a"]] * 30, object), "values of type object: save numbers, as x.astype("),
        (np.zeros((0, 4), np.float32), "(0, 4)"),
    ],
    ids=["missing", "nan", "above", "below", "1-D", "categories", "grey", "objects", "empty"],
)
def test_bad_data_cost_one_line_and_leave_nothing(
    capsys, tmp_path, monkeypatch, no_training, array, words
):
    monkeypatch.chdir(tmp_path)
    if array is not None:
        np.save("data.npy", array, allow_pickle=True)
    before = list(tmp_path.iterdir())
    result = run(capsys, "train", "data.npy", "--batch-size", 8, "--out", "run")
    assert_mistake(result, words)
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "give either DATA"), (["--epochs", "3"], "give either DATA"), (["nonsense"], "nonsense")],
)
def test_data_must_be_named(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert_mistake(run(capsys, "train", *arguments), words)
    assert list(tmp_path.iterdir()) == []
