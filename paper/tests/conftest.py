"""A trained run, small enough to be made in seconds, and one that was never made."""

import numpy as np
import pytest

from paper.core import runs
from paper.core.trained import Subject
from paper.tables.plans import Method, Networks, Optimizer, Training


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The folder of a run on the digits, after three updates."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    # A batch that one device takes: compiling for eight takes longer.
    networks, optimizer = Networks(num_latents=2, num_hidden=8), Optimizer(batch_size=499)
    runs.train(Training("digits", 1, Method("vae"), networks, optimizer), folder, None)
    return folder


@pytest.fixture
def untrained(monkeypatch, tmp_path):
    """The folder of a run that opens without networks, for what is checked before the work."""
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)

    def open_subject(path, num_examples, data_dir):
        xs = np.zeros((num_examples, 2), np.float32)
        return Subject(path, 3, None, None, "aisle train", np.arange(num_examples), xs, xs)

    for study in ("kernels", "gradients"):
        monkeypatch.setattr(f"paper.{study}.study.open_subject", open_subject)
    return folder
