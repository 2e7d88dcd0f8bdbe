"""Files of format 2 open: see tests/fixtures/second_edition."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import aisle

FILES = Path(__file__).parents[1] / "fixtures" / "second_edition"
EXPECTED = json.loads((FILES / "expected.json").read_text())


@pytest.mark.parametrize("name", ["run", "exported", "exported/model.safetensors"])
def test_what_was_written_is_read(name):
    model, _ = aisle.load(FILES / name)
    found = model.mean_observation(jnp.asarray(EXPECTED["z"]))
    np.testing.assert_allclose(found, EXPECTED["mean"], atol=1e-5)


def test_the_run_says_what_it_is():
    run = aisle.open_run(FILES / "run")
    assert (run.update, run.config.data, run.stored["format"]) == (3, "digits", 2)
