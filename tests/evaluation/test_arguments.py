"""What `log_likelihood` takes, and what it refuses before anything is computed or written."""

import dataclasses
import json
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import log_likelihood
from aisle.errors import InputError
from aisle.models import DiagonalNormal, LinearGaussian

NUM_EXAMPLES = 10
MODEL = LinearGaussian(jnp.ones((4, 3)), jnp.zeros(4), jnp.zeros(()))
XS = np.random.default_rng(0).normal(size=(NUM_EXAMPLES, 4)).astype(np.float32)


def encoder(x):
    return DiagonalNormal(jnp.zeros(3), jnp.ones(3))


BAD_ARGUMENTS = [
    ({"num_chains": 0}, "num_chains is 0"),
    ({"num_chains": -1}, "num_chains is -1"),
    ({"num_chains": 16.0}, r"num_chains is 16\.0: it must be a whole number"),
    ({"num_temperatures": 500.5}, r"num_temperatures is 500\.5: it must be a whole number"),
    ({"seed": 1.5}, r"seed is 1\.5: it must be a whole number"),
    ({"about": {"run": Path("runs")}}, r"about cannot be written as JSON \(.*\): give plain"),
    ({"proposal": DiagonalNormal(jnp.zeros(3), jnp.ones(3))}, "proposal is a DiagonalNormal: give"),
    ({"x": np.full((5, 4), 1e39)}, "example 0 .*not finite"),
    ({"num_temperatures": 1}, "num_temperatures is 1: it must be at least 2"),
    ({"num_leapfrog": 0}, "num_leapfrog is 0"),
    ({"schedule": "immediate"}, "schedule is immediate"),
    ({"precondition": -1.0}, "precondition is -1"),
    ({"precondition": float("nan")}, "precondition is nan"),
    ({"proposal": None, "precondition": 1.0}, "precondition is 1 .*no `scale`: use 0"),
    ({"momentum_refresh": 0.0}, "momentum_refresh is 0"),
    ({"momentum_refresh": 1.5}, "momentum_refresh is 1.5"),
    ({"target_accept": 1.0}, "target_accept is 1"),
    ({"target_accept": float("nan")}, "target_accept is nan"),
    ({"bdmc_examples": -1}, "bdmc_examples is -1"),
    ({"tolerance": 0.0}, "tolerance is 0"),
    ({"tolerance": float("nan")}, "tolerance is nan"),
    ({"tolerance": 0.1, "bdmc_examples": 0}, "bdmc_examples is 0, but a tolerance"),
    ({"tolerance": 0.1, "bdmc_examples": 1}, "bdmc_examples is 1, but a tolerance"),
    ({"max_seconds": 0.0}, "max_seconds is 0"),
    ({"max_seconds": float("inf")}, "max_seconds is inf"),
    ({"importance_samples": -1}, "importance_samples is -1"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**32}, "seed is 4294967296"),
    ({"memory_mb": 0}, "memory_mb is 0"),
    ({"x": XS[:0]}, "no observations"),
    ({"x": np.float32(1)}, r"shapes \[\(\)\]"),
    ({"x": (XS, XS[1:])}, "as many in each"),
    ({"x": np.ma.masked_greater(XS, 0)}, r"the observations have \d+ masked values"),
    ({"x": XS[0]}, r"an example has the shape \(\) but those that the model simulates \(4,\)"),
    ({"x": XS[:, :3]}, r"an example has the shape \(3,\) but those"),
    ({"x": XS[:, None]}, r"an example has the shape \(1, 4\) but those"),
    ({"x": np.eye(NUM_EXAMPLES, 4, dtype=np.uint8)}, "x holds only 0 and 1 as uint8"),
    ({"pilot_x": XS[:, :3]}, r"an example has the shape \(3,\) but those"),
    ({"x": np.where(np.arange(NUM_EXAMPLES)[:, None] == 3, np.nan, XS)}, "example 3 .*not finite"),
    ({"pilot_x": np.full((5, 4), np.inf, np.float32)}, "example 0 .*not finite"),
    ({"model": eqx.tree_at(lambda m: m.bias, MODEL, MODEL.bias * jnp.nan)}, "is not a number"),
    ({"indices": np.arange(9)}, "9 different indices for 10 examples"),
    ({"indices": np.arange(10) // 2}, "5 different indices for 10 examples"),
    ({"indices": np.arange(10) / 2}, "whole numbers"),
    ({"indices": np.arange(10) - 1}, "from -1 to 8"),
    ({"indices": np.arange(10) + 2**31}, "whole numbers"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_ARGUMENTS, ids=lambda a: ",".join(a))
def test_a_bad_argument_is_refused_and_leaves_nothing(as_users_have_it, tmp_path, changes, words):
    arguments = {"model": MODEL, "proposal": encoder, "x": XS} | changes
    with pytest.raises(InputError, match=words):
        log_likelihood(**arguments, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_arrays_of_other_libraries(as_users_have_it, quick_compilation, tmp_path):
    class Frame:
        """What NumPy can read, and has no type of its own, as a table of pandas."""

        shape = (3, 4)

        def __array__(self, dtype=None, copy=None):
            return XS[:3].astype(dtype)

    @dataclasses.dataclass
    class Own:
        """A model that is no pytree, and cannot be hashed."""

        given: object

        def __getattr__(self, name):
            return getattr(self.given, name)

    small = {"num_chains": 1, "num_temperatures": 2, "importance_samples": 0, "seed": np.int64(3)}
    options = small | {"bdmc_examples": np.int64(2), "max_seconds": np.float32(100)}
    result = log_likelihood(Own(MODEL), encoder, Frame(), out=tmp_path, **options)
    assert np.all(np.isfinite(result.log_p))
    stored = json.loads((tmp_path / "result.json").read_text())
    assert (stored["settings"]["seed"], stored["settings"]["bdmc_examples"]) == (3, 2)
