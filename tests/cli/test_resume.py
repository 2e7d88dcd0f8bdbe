"""Runs that are killed, stopped, damaged or short of disk, against one that is left alone.

Every run here has the same settings as the `reference` run, and is compared with it bit for bit.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
import safetensors.numpy

from aisle.runs import checkpoints, training
from aisle.runs.folder import held, update_config
from commands import PROGRAM, assert_mistake, call, contents, run

# Each epoch of 3 updates ends with a bound on validation data; the first one is of a VAE. The rate
# does not depend on the length of a run, so that a run that is extended is the longer run. Options
# are those of test_train.py, and so are compiled programs.
EPOCHS, UPDATES_PER_EPOCH, LINES_PER_EPOCH = 4, 3, 4
UPDATES = EPOCHS * UPDATES_PER_EPOCH
SETTINGS = [
    "digits",
    *("-K", "2", "-T", "3", "-L", "2", "--warmup-epochs", "1", "--ema", "0.9"),
    *("--num-hidden", "8", "--num-latents", "2", "--batch-size", "449", "--optimizer", "adam"),
    *("--lr-schedule", "constant", "--validate-every", "1", "--checkpoint-minutes", "0"),
]


def num_lines(folder):
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def records_of(folder):
    """All lines, which must be whole, without the time that they were written at."""
    content = (folder / "metrics.jsonl").read_text()
    assert content.endswith("\n")
    records = [json.loads(line) for line in content.splitlines()]
    seconds = [record.pop("seconds", 0.0) for record in records]
    assert seconds == sorted(seconds)
    return records


def assert_same_run(folder, reference):
    assert records_of(folder) == records_of(reference)
    assert_same_checkpoint(folder, reference, UPDATES)


def assert_same_checkpoint(folder, reference, update):
    """It holds all that training changes."""
    found, wanted = (safetensors.numpy.load_file(file_of(f, update)) for f in (folder, reference))
    assert found.keys() == wanted.keys()
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


@pytest.fixture(scope="module")
def reference(tmp_path_factory, compiled_once):
    """A run that nothing happened to, and that keeps all of its checkpoints."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    arguments = (*SETTINGS, "--keep-checkpoints", "99", "--epochs", EPOCHS, "--out", folder)
    assert call("train", *arguments) == 0
    return folder


@pytest.fixture(scope="module")
def two_epochs(tmp_path_factory, reference):
    """The first two epochs of the reference run, as if planned so: the rate is constant."""
    folder = tmp_path_factory.mktemp("short") / "run"
    shutil.copytree(reference, folder)
    for update in checkpoints.updates(folder):
        if update != 2 * UPDATES_PER_EPOCH:
            file_of(folder, update).unlink()
    stored = json.loads((folder / "config.json").read_text())
    stored["train"]["num_epochs"], stored["ends"] = 2, [3, 6]
    update_config(folder, stored)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[: 2 * LINES_PER_EPOCH]))
    return folder


@contextmanager
def started(environment, *arguments, program=PROGRAM):
    """A process of the command line, which does not outlive the test."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_lines(process, folder, number):
    """Return when training has written so many lines, or the process has ended."""
    limit = time.monotonic() + 180
    while num_lines(folder) < number and process.poll() is None:
        assert time.monotonic() < limit, "no progress in three minutes"
        time.sleep(0.005)


@pytest.mark.slow
def test_the_reference_is_a_whole_run_in_which_step_sizes_matter(reference):
    records = records_of(reference)
    assert len(records) == EPOCHS * LINES_PER_EPOCH
    updates = [record["update"] for record in records if "bound" in record]
    assert updates == list(range(1, UPDATES + 1))
    assert checkpoints.latest(reference) == updates[-1]
    chains = [r for r in records if r.get("step_size")]
    assert len({tuple(r["step_size"]) for r in chains}) == len(chains) == len(updates) - 3


@pytest.mark.slow
@pytest.mark.parametrize("phase", [0, 1])
def test_a_run_that_ended_in_either_phase_is_resumed_bit_for_bit(
    capsys, tmp_path, reference, phase
):
    """In the second one after damage, to the newest checkpoint and to the end of the history."""
    folder = tmp_path / "run"
    shutil.copytree(reference, folder)
    begin, end = [(0, UPDATES_PER_EPOCH), (UPDATES_PER_EPOCH, UPDATES)][phase]
    start, *_ = (u for u in checkpoints.updates(folder) if begin < u < end)
    later = [u for u in checkpoints.updates(folder) if u > start]
    for update in later[phase:]:
        file_of(folder, update).unlink()
    damaged = [file_of(folder, update) for update in later[:phase]]
    for file in damaged:
        os.truncate(file, file.stat().st_size // 2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 99, "bound": 1000.0}\n{"update": 100, "bou')
    code, out, err = run(capsys, "train", "--resume", folder)
    assert (code, "Traceback" in err) == (0, False)
    assert f"{UPDATES} updates, kept in {folder}" in out
    reports = [line for line in err.splitlines() if "damaged" in line]
    assert len(reports) == len(damaged)
    for line, file in zip(reports, damaged, strict=True):
        assert line.startswith(f"aisle: {file} is damaged (")
        assert line.endswith(f"using {file_of(folder, start)} instead")
    assert_same_run(folder, reference)


def file_of(folder, update):
    return folder / "checkpoints" / f"{update}.safetensors"


def kill_and_resume(environment, folder, rng, num_kills):
    """Start a run, then kill it and go on with it at random moments of training."""
    arguments = (*SETTINGS, "--keep-checkpoints", 99, "--epochs", EPOCHS, "--out", folder)
    codes = []
    for _ in range(num_kills):
        before = num_lines(folder)
        with started(environment, "train", *arguments) as process:
            wait_for_lines(process, folder, before + rng.integers(2, 7))
            time.sleep(rng.uniform(0, 0.15))
            process.kill()
            out, err = process.communicate()
        codes.append(process.returncode)
        assert process.returncode in (0, -signal.SIGKILL), out + err
        assert "Traceback" not in err
        arguments = ("--resume", folder)
    assert codes.count(-signal.SIGKILL) >= 2


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_as_if_it_had_not_been(
    tmp_path, compiled_once, reference
):
    folder = tmp_path / "run"
    kill_and_resume(compiled_once, folder, np.random.default_rng(0), num_kills=3)
    assert call("train", "--resume", folder) == 0
    assert_same_run(folder, reference)


@pytest.mark.slow
def test_so_does_one_of_processes_as_users_start_them(tmp_path):
    """With all optimisations of the compiler, no cache of programs and a device for each core."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    with started(None, "train", *SETTINGS, "--epochs", EPOCHS, "--out", whole) as process:
        assert process.wait() == 0
    kill_and_resume(None, folder, np.random.default_rng(0), num_kills=4)
    with started(None, "train", "--resume", folder) as process:
        assert process.wait() == 0
    assert_same_run(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_run_that_is_asked_to_stop_says_how_to_resume(
    tmp_path, compiled_once, reference, number, code
):
    folder = tmp_path / "run"
    # Without a checkpoint between, so that only the signal can have made the last one.
    arguments = (*SETTINGS, "--checkpoint-minutes", 60, "--epochs", EPOCHS, "--out", folder)
    with started(compiled_once, "train", *arguments) as process:
        wait_for_lines(process, folder, 3)
        process.send_signal(number)
        out, err = process.communicate(timeout=180)
    assert process.returncode == code, out + err
    assert "Traceback" not in out + err
    update = checkpoints.latest(folder)
    assert 0 < update < UPDATES
    assert out == ""
    *_, ended, how = err.splitlines()
    name = signal.Signals(number).name
    assert ended == f"aisle: {name} ended training at update {update} of {UPDATES}"
    assert how == f"aisle: {folder} is resumed by aisle train --resume {folder}"
    last = (folder / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["update"] == update
    assert checkpoints.updates(folder) == [update]
    # One that the tests above resume from.
    assert_same_checkpoint(folder, reference, update)


def test_ctrl_c_before_training_begins_leaves_no_traceback(capsys, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupted)
    assert call("train", *SETTINGS, "--out", tmp_path / "run") == 130
    assert capsys.readouterr().err.count("\n") <= 1


def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_anew(capsys, tmp_path, digits):
    folder = tmp_path / "run"
    shutil.copytree(digits, folder)
    for path in (folder / "checkpoints").rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    before = contents(folder)
    assert_mistake(run(capsys, "train", "--resume", folder), "no checkpoint", "can be read")
    assert contents(folder) == before


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
"""


@pytest.mark.slow
def test_a_full_disk_costs_only_the_new_checkpoint(tmp_path, compiled_once, two_epochs, reference):
    folder = tmp_path / "run"
    shutil.copytree(two_epochs, folder)
    kept = file_of(folder, 6).read_bytes()
    program = FULL_DISK.format(limit=len(kept) - 1000) + PROGRAM
    arguments = ("train", "--resume", folder, "--epochs", EPOCHS)
    with started(compiled_once, *arguments, program=program) as process:
        out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (2, ""), err
    lines = [line for line in err.splitlines() if not line.startswith("epoch ")]
    assert len(lines) == 1
    assert lines[0].startswith("aisle: cannot write the checkpoint ")
    assert "File too large): the one of update 6 is untouched" in lines[0]
    assert lines[0].endswith(f"then resume {folder}")
    assert file_of(folder, 6).read_bytes() == kept
    assert num_lines(folder) > 2 * LINES_PER_EPOCH
    assert checkpoints.latest(folder) == 6
    assert call("train", "--resume", folder) == 0
    assert_same_run(folder, reference)


@pytest.mark.slow
def test_a_run_can_be_extended(capsys, tmp_path, two_epochs, reference):
    folder = tmp_path / "run"
    shutil.copytree(two_epochs, folder)
    before = json.loads((folder / "config.json").read_text())
    code, out, err = run(capsys, "train", "--resume", folder, "--epochs", EPOCHS)
    assert code == 0
    assert f"{UPDATES} updates, kept in {folder}" in out
    assert "Traceback" not in err
    after = json.loads((folder / "config.json").read_text())
    assert (before["train"].pop("num_epochs"), after["train"].pop("num_epochs")) == (2, EPOCHS)
    assert (before.pop("ends"), after.pop("ends")) == ([3, 6], [3, UPDATES])
    assert after == before
    assert_same_run(folder, reference)


@pytest.mark.slow
def test_resuming_a_complete_run_changes_nothing(capsys, two_epochs):
    before = contents(two_epochs)
    for more in ([], ["--epochs", "2"]):
        code, out, err = run(capsys, "train", "--resume", two_epochs, *more)
        assert (code, err) == (0, "")
        assert out == f"6 updates, kept in {two_epochs}\n"
        assert contents(two_epochs) == before
    cut = run(capsys, "train", "--resume", two_epochs, "--epochs", "1")
    assert_mistake(cut, "3 updates are asked for but the run was planned for 6: a run can be")


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "vae"],
        ["-K", "3"],
        ["--model", "two-layer"],
        ["--seed", "4"],
        ["--binarize", "none"],
        ["--learning-rate", "0.1"],
        ["--tensorboard"],
        ["--out", "elsewhere"],
    ],
)
def test_a_run_is_resumed_with_its_own_options_only(capsys, digits, options):
    before = contents(digits)
    result = run(capsys, "train", "--resume", digits, *options)
    assert_mistake(result, "--resume", "only --epochs, --updates and --data-dir may be given")
    assert contents(digits) == before


def test_a_run_is_trained_by_one_process_at_a_time(capsys, digits):
    before = contents(digits)
    with held(digits):
        result = run(capsys, "train", "--resume", digits, "--updates", 6)
    assert_mistake(result, f"{digits} is being trained by another process: wait for it")
    assert contents(digits) == before


def test_data_and_resume_exclude_each_other(capsys, digits):
    assert_mistake(run(capsys, "train", "digits", "--resume", digits), "either DATA")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--updates", "2"], "2 updates are asked for but the run was planned for 3: a run can be"),
        (["--epochs", "0"], "epochs is 0"),
        (["--updates", "-1"], "updates is -1"),
    ],
)
def test_a_run_cannot_be_cut(capsys, digits, options, words):
    before = contents(digits)
    result = run(capsys, "train", "--resume", digits, *options)
    assert_mistake(result, words)
    assert contents(digits) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not a run"),
        ("", "is damaged"),
        ('{"other": {}}', "not that of a training run"),
        ('{"format": 3}', "has format 3, and this version of aisle reads formats up to 2: install"),
    ],
)
def test_a_folder_that_is_no_run(capsys, tmp_path, digits, content, words):
    folder = tmp_path / "run"
    shutil.copytree(digits, folder)
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    before = contents(tmp_path)
    assert_mistake(run(capsys, "train", "--resume", folder), words)
    assert_mistake(run(capsys, "sample", folder, "--out", tmp_path / "a.png"), words)
    assert contents(tmp_path) == before
