"""Two processes on one machine, joined by JAX, against one."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from aisle import processes
from aisle.errors import InputError

TRAIN = "train digits --num-latents 3 --num-hidden 10 -K 2 -T 3 -L 2 --batch-size 100 --epochs 1"
# Of 1,350 digits in batches of 100.
UPDATES = 13
EVALUATE = "evaluate run --num-examples 10 -C 2 -T 5 --bdmc-examples 6 --importance-samples 4"


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def start(folder, command, devices, *joined):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
    return subprocess.Popen(
        [sys.executable, "-m", "aisle", *command.split(), *map(str, joined)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_alone(folder, command):
    process = start(folder, command, 2)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def run_joined(folder, command):
    port = free_port()
    joined = ["--distributed", "--coordinator", f"localhost:{port}", "--num-processes", 2]
    both = [start(folder, command, 1, *joined, "--process-id", i) for i in range(2)]
    outputs = [process.communicate(timeout=300) for process in both]
    return [(process.returncode, *output) for process, output in zip(both, outputs, strict=True)]


def training_bounds(folder):
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["bound"] for line in lines if "loss_theta" in line]


def figures(folder):
    (found,) = (folder / "run" / "evaluations").glob("*/result.json")
    result = json.loads(found.read_text())
    with np.load(found.with_name("examples.npz")) as file:
        return result, file["log_p"]


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tmp_path):
    alone, joined = tmp_path / "alone", tmp_path / "joined"
    for folder in (alone, joined):
        folder.mkdir()
    for command in (f"{TRAIN} --out run", EVALUATE):
        assert run_alone(alone, command)[0] == 0
        first, second = run_joined(joined, command)
        assert (first[0], second[0]) == (0, 0), first[2] + second[2]
        assert "run" in first[1]
        assert all(line.startswith("[Gloo]") for line in second[1].splitlines())
    bounds = [training_bounds(folder) for folder in (alone, joined)]
    assert len(bounds[0]) == UPDATES
    np.testing.assert_allclose(*bounds, rtol=1e-5)
    (one, log_p), (two, log_p_joined) = map(figures, (alone, joined))
    np.testing.assert_allclose(log_p, log_p_joined, rtol=1e-4)
    for name in ("lower", "upper"):
        np.testing.assert_allclose(one["bdmc"][name], two["bdmc"][name], rtol=1e-4)
    # The run of two processes goes on in one.
    code, out, err = run_alone(joined, "train --resume run --epochs 2")
    assert code == 0 and f"{2 * UPDATES} updates" in out, err


@pytest.mark.slow
def test_a_mistake_ends_both_processes(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("not a run")
    first, second = run_joined(tmp_path, f"{TRAIN} --out run")
    assert (first[0], second[0]) == (2, 2)
    assert "choose another folder" in first[2] and "first process" in second[2]


def test_one_process_agrees_with_itself():
    assert processes.is_first()
    assert processes.largest(3) == 3
    assert processes.from_first({"a": 1.5}) == {"a": 1.5}
    done = []
    processes.first_does(lambda: done.append(1))
    assert done == [1]


def test_what_fails_in_the_first_process_fails():
    def fail():
        raise InputError("no room")

    with pytest.raises(InputError, match="no room"):
        processes.first_does(fail)
