import json
import math
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from aisle.errors import InputError
from aisle.runs import folder
from aisle.runs.folder import (
    MetricsWriter,
    create,
    held,
    last_metrics,
    read_config,
    read_metrics,
    update_config,
)
from aisle.runs.recorder import RunFolder
from disks import full_disk


def one_line(caught):
    return "\n" not in str(caught.value)


def test_settings_come_back_with_their_provenance(tmp_path):
    run = tmp_path / "new" / "run"
    create(run, {"model": {"width": 200}, "rate": 1e-3})
    config = read_config(run)
    assert config["provenance"].keys() >= {"packages", "git_commit"}
    assert config | {"provenance": None} == {
        "format": 2,
        "model": {"width": 200},
        "rate": 1e-3,
        "provenance": None,
    }
    assert (run / "config.json").read_text().startswith('{\n  "format": 2,\n  "model"')
    assert [path.name for path in run.iterdir()] == ["config.json"]


def test_a_kill_while_the_settings_are_written_is_not_in_the_way(tmp_path):
    (tmp_path / ".config.json.123.partial").write_text('{"a"')
    create(tmp_path, {"a": 1})
    assert read_config(tmp_path)["a"] == 1


def test_the_last_record(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        last_metrics(tmp_path)
    with MetricsWriter(tmp_path) as writer:
        assert last_metrics(tmp_path) == {}
        writer.write({"update": i} for i in range(1, 10))
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": 10')
    assert last_metrics(tmp_path) == {"update": 9}


def test_an_empty_folder_becomes_a_run_and_another_is_left_alone(tmp_path):
    create(tmp_path, {"a": 1})
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(InputError, match=f"{tmp_path} holds a run already: resume it, or"):
        create(tmp_path, {"a": 2})
    assert (tmp_path / "config.json").read_bytes() == before
    (tmp_path / "config.json").rename(tmp_path / "thesis.txt")
    with pytest.raises(InputError, match="files that are not of a run: choose another folder"):
        create(tmp_path, {"a": 2})


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    for run in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match=f"cannot write {run}") as caught:
            create(run, {})
        assert one_line(caught)


def test_settings_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="absent does not exist: give the folder of a run"):
        read_config(tmp_path / "absent")
    with pytest.raises(InputError, match=r"is not a run, as it has no config\.json"):
        read_config(tmp_path)
    for content in (b'{"a": 1', b"", b"[1]", b"\xff\xfe"):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(InputError, match=r"config\.json is damaged") as caught:
            read_config(tmp_path)
        assert one_line(caught)
    with pytest.raises(InputError, match="is not a run"):
        read_config(tmp_path / "config.json")


def test_settings_of_a_later_format_are_refused(tmp_path):
    later = {"format": 3, "provenance": {"packages": {"aisle": "0.4.0"}}}
    for config, needed in ((later, "aisle 0.4.0 or newer"), ({"format": 3}, "a newer aisle")):
        (tmp_path / "config.json").write_text(json.dumps(config))
        message = rf"config\.json has format 3, .* up to 2: install {needed}$"
        with pytest.raises(InputError, match=message) as caught:
            read_config(tmp_path)
        assert one_line(caught)


def test_settings_of_the_first_edition_keep_their_format(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    config = read_config(tmp_path)
    assert config == {"format": 1, "a": 1}
    update_config(tmp_path, config | {"a": 2})
    assert read_config(tmp_path) == {"format": 1, "a": 2}


TRAINER = """
import pathlib, sys
from aisle.errors import InputError
from aisle.runs.folder import held
try:
    with held(pathlib.Path(sys.argv[1])):
        print("trained")
except InputError as error:
    print(error)
"""


def test_one_process_trains_a_run_at_a_time(tmp_path):
    command = [sys.executable, "-c", TRAINER, str(tmp_path)]
    with held(tmp_path):
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == (
        f"{tmp_path} is being trained by another process: wait for it, or stop it first\n"
    )
    with held(tmp_path):
        pass


def test_settings_are_replaced_at_once_or_not_at_all(tmp_path):
    create(tmp_path, {"a": 1})
    update_config(tmp_path, {"a": 2})
    assert read_config(tmp_path) == {"format": 2, "a": 2}
    with full_disk(1000), pytest.raises(InputError, match=r"config\.json \(File too large\)"):
        update_config(tmp_path, {"a": "3" * 2000})
    assert read_config(tmp_path) == {"format": 2, "a": 2}
    assert len(list(tmp_path.iterdir())) == 1


def test_records_become_plain_numbers(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write([{"update": 1, "time": 1234567890.125, "note": "début", "none": None}])
        writer.write(
            [
                {"update": np.int64(2), "loss": jnp.float32(0.1), "done": np.bool_(True)},
                {
                    "update": jnp.asarray(3),
                    "steps": jnp.array([0.1, math.nan]),
                    "n": [1, -math.inf],
                },
                {"update": 4, "loss": np.float32(math.inf), "third": np.float64(1 / 3)},
                {"update": 5, "low": jnp.asarray(0.5, jnp.bfloat16), "counts": np.arange(2)},
            ]
        )
        # In the file before the writer is closed.
        found = read_metrics(tmp_path)
    assert found == [
        {"update": 1, "time": 1234567890.125, "note": "début", "none": None},
        {"update": 2, "loss": 0.1, "done": True},
        {"update": 3, "steps": [0.1, None], "n": [1, None]},
        {"update": 4, "loss": None, "third": 0.3333333},
        {"update": 5, "low": 0.5, "counts": [0, 1]},
    ]


def test_a_matrix_is_no_metric_and_leaves_no_trace(tmp_path):
    with MetricsWriter(tmp_path) as writer, pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        writer.write([{"update": 1}, {"update": 2, "matrix": np.ones((2, 2))}])
    assert read_metrics(tmp_path) == []


def test_resuming_drops_later_updates_and_half_a_line(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write([{"update": 1}, {"update": 2}, {"note": "no update"}, {"update": 3}])
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes() + b'{"update": 2, "lo')
    assert read_metrics(tmp_path)[-1] == {"update": 3}
    with MetricsWriter(tmp_path, resume_at=2) as writer:
        writer.write([{"update": 3, "again": True}])
    assert read_metrics(tmp_path) == [
        {"update": 1},
        {"update": 2},
        {"note": "no update"},
        {"update": 3, "again": True},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_history_cut_anywhere_can_be_continued(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write([{"update": update, "loss": update / 7} for update in range(1, 4)])
    file = tmp_path / "metrics.jsonl"
    content = file.read_bytes()
    for size in range(len(content) + 1):
        file.write_bytes(content[:size])
        with MetricsWriter(tmp_path) as writer:
            writer.write([{"update": 9}])
        whole = [json.loads(line) for line in content.splitlines()]
        found = read_metrics(tmp_path)
        assert found == [*whole[: len(found) - 1], {"update": 9}]
        assert len(found) > content[:size].count(b"\n")


def test_dropping_is_atomic(tmp_path, monkeypatch):
    with MetricsWriter(tmp_path) as writer:
        writer.write([{"update": 1}, {"update": 2}])

    def interrupted(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MetricsWriter(tmp_path, resume_at=1)
    assert read_metrics(tmp_path) == [{"update": 1}, {"update": 2}]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_history_is_not_passed_over(tmp_path):
    file = tmp_path / "metrics.jsonl"
    for content, number in ((b'{"update": 1}\n{"upd\n{"update": 2}\n', 2), (b"[1]\n", 1)):
        file.write_bytes(content)
        for use in (read_metrics, MetricsWriter):
            with pytest.raises(InputError, match=f"line {number} is not a JSON object") as caught:
                use(tmp_path)
            assert one_line(caught)
        assert file.read_bytes() == content
    with pytest.raises(InputError, match="does not exist"):
        read_metrics(tmp_path / "absent")


def test_a_full_disk_leaves_whole_lines(tmp_path):
    with MetricsWriter(tmp_path) as writer, full_disk(1000):
        writer.write([{"update": 1}])
        with pytest.raises(InputError, match=r"metrics\.jsonl \(File too large\)") as caught:
            writer.write([{"update": update} for update in range(2, 200)])
        assert one_line(caught)
        writer.write([{"update": 2}])
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"update": 1}\n{"update": 2}\n'


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*absent"):
        MetricsWriter(tmp_path / "absent")


def scalars(folder):
    """Return the numbers that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_shows_the_same_numbers(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=True) as writer:
        writer.write(
            [
                {"update": 1, "loss": 0.5, "betas": np.array([0.25, math.nan]), "note": "x"},
                {"update": 2, "loss": 0.25},
                {"loss": 9.0},
            ]
        )
        expected = {"loss": [(1, 0.5), (2, 0.25)], "betas/0": [(1, 0.25)]}
        assert scalars(tmp_path) == expected
    assert scalars(tmp_path) == expected


def test_tensorboard_forgets_what_a_resumed_run_writes_again(tmp_path):
    for resume_at, loss in ((None, 1.0), (2, 2.0)):
        with MetricsWriter(tmp_path, resume_at=resume_at, tensorboard=True) as writer:
            first = (resume_at or 0) + 1
            writer.write(
                [{"update": first + i, "loss": loss} for i in range(4 if loss == 1 else 1)]
            )
    assert scalars(tmp_path) == {"loss": [(1, 1.0), (2, 1.0), (3, 2.0)]}
    assert [record["update"] for record in read_metrics(tmp_path)] == [1, 2, 3]


def test_tensorboard_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'aisle\[tensorboard\]'"):
        RunFolder("runs/mine", tensorboard=True)
