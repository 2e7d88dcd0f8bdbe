"""A trained run, small enough to be made in seconds."""

import pytest

from paper.core import runs
from paper.tables.plans import Method, Networks, Optimizer, Training


@pytest.fixture(scope="module")
def digits(tmp_path_factory, quick_compilation):
    """The folder of a run on the digits, after three updates."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    # A batch that one device takes: compiling for eight takes longer.
    networks, optimizer = Networks(num_latents=2, num_hidden=8), Optimizer(batch_size=499)
    runs.train(Training("digits", 1, Method("vae"), networks, optimizer), folder, None)
    return folder
