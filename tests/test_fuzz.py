"""Damage of any kind, drawn by Hypothesis: a file is read, or refused in one line."""

import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import aisle
from aisle.errors import InputError
from aisle.report.reading import read_run
from aisle.runs import checkpoints, folder, tensors

hypothesis = pytest.importorskip(
    "hypothesis", reason="Hypothesis is not installed: make env has it"
)
given, st = hypothesis.given, hypothesis.strategies

FIRST_EDITION = Path(__file__).parent / "fixtures" / "first_edition"

settings = hypothesis.settings(
    max_examples=60,
    deadline=timedelta(seconds=20),
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


@st.composite
def damaged(draw, content):
    """Cut, repeat, overwrite or insert, once or more."""
    for _ in range(draw(st.integers(1, 3))):
        a, b = sorted(draw(st.integers(0, len(content))) for _ in range(2))
        piece = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(
                    [b"", b"NaN", b"-1", b"9" * 30, b"{}", b"null", b'"', content[a:b]]
                ),
            )
        )
        b = draw(st.sampled_from([a, b, len(content)]))
        content = content[:a] + piece + content[b:]
    return content


def assert_harmless(read, path):
    """Check that a file is read or refused in one line, and that nothing else is written."""
    home = path.parent
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    try:
        read(path)
    except InputError as error:
        assert "\n" not in str(error)
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file()} == before


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Return small files of each kind."""
    home = tmp_path_factory.mktemp("originals")
    rows = np.random.default_rng(0).integers(0, 2, (12, 3))
    np.save(home / "x.npy", rows)
    np.savez(home / "x.npz", train=rows, test=rows)
    np.savez_compressed(home / "y.npz", train=rows, test=rows)
    lines = ["a,b,kind", *(f"{i},{i / 3},{'uv'[i % 2]}" for i in range(12))]
    (home / "x.csv").write_text("\n".join(lines))
    tensors.write(home / "w.safetensors", {"a": np.ones(3), "b": np.arange(4)}, {"update": 3})
    return home


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "y.npz", "x.csv"])
def test_data(originals, tmp_path, name):
    content = (originals / name).read_bytes()

    @settings
    @given(damaged(content))
    def check(changed):
        (tmp_path / name).write_bytes(changed)
        assert_harmless(aisle.data.load, tmp_path / name)

    check()


@pytest.mark.slow
def test_weights(tmp_path):
    content = (FIRST_EDITION / "averaged.safetensors").read_bytes()

    @settings
    @given(damaged(content))
    def check(changed):
        (tmp_path / "w.safetensors").write_bytes(changed)
        assert_harmless(aisle.load, tmp_path / "w.safetensors")

    check()


@pytest.mark.slow
def test_checkpoints(originals, tmp_path):
    content = (originals / "w.safetensors").read_bytes()
    home = tmp_path / "checkpoints"
    home.mkdir()
    like = {"a": np.ones(3), "b": np.arange(4)}

    def read(path):
        checkpoints.restore(path.parents[1], lambda _: like, report=lambda line: None)

    @settings
    @given(damaged(content))
    def check(changed):
        (home / "3.safetensors").write_bytes(changed)
        assert_harmless(read, home / "3.safetensors")

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_runs(tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(FIRST_EDITION / "averaged", run)
    content = (run / name).read_bytes()
    read = {
        "config.json": lambda path: (folder.read_config(path.parent), read_run(path.parent)),
        "metrics.jsonl": lambda path: folder.read_metrics(path.parent),
    }[name]

    @settings
    @given(damaged(content))
    def check(changed):
        (run / name).write_bytes(changed)
        assert_harmless(read, run / name)

    check()
