"""What `log_likelihood` takes, and what it refuses before anything is computed or written."""

import dataclasses
import json
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from aisle import HMC, Certificate, ImportanceSampler, Kernel, Sampler, log_likelihood, schedules
from aisle.errors import InputError
from aisle.models import DiagonalNormal, LinearGaussian
from evaluating import chosen

NUM_EXAMPLES = 10
MODEL = LinearGaussian(jnp.ones((4, 3)), jnp.zeros(4), jnp.zeros(()))
XS = np.random.default_rng(0).normal(size=(NUM_EXAMPLES, 4)).astype(np.float32)


def encoder(x):
    return DiagonalNormal(jnp.zeros(3), jnp.ones(3))


BAD_ARGUMENTS = [
    ({"sampler": 16}, r"sampler is 16: give an aisle\.Sampler"),
    ({"sampler": ImportanceSampler()}, r"sampler is aisle\.ImportanceSampler\(.*: give an"),
    ({"certificate": 0.1}, r"certificate is 0\.1: give an aisle\.Certificate"),
    ({"seed": 1.5}, r"seed is 1\.5: it must be a whole number"),
    ({"about": {"run": Path("runs")}}, r"about cannot be written as JSON \(.*\): give plain"),
    ({"proposal": DiagonalNormal(jnp.zeros(3), jnp.ones(3))}, "proposal is a DiagonalNormal: give"),
    ({"x": np.full((5, 4), 1e39)}, r"x has the value 1e\+39 in row 0.*finite"),
    ({"proposal": None, "sampler": Sampler(refit=5)}, "refit is 5 but chains start at the prior"),
    ({"importance_samples": -1}, "importance_samples is -1"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**32}, "seed is 4294967296"),
    ({"x": XS[:0]}, "x have no examples"),
    ({"x": np.float32(1)}, r"shapes \[\(\)\]"),
    ({"x": (XS, XS[1:])}, "as many in each"),
    ({"x": np.ma.masked_greater(XS, 0)}, r"x have \d+ masked values"),
    ({"x": XS[0]}, r"x have the shape \(4,\): give examples along the first axis"),
    ({"x": XS[:, :3]}, r"an example has the shape \(3,\) but those"),
    ({"x": XS[:, None]}, r"an example has the shape \(1, 4\) but those"),
    ({"x": np.full((5, 4), 2**31)}, "x has the value 2147483648 in row 0.*int32"),
    ({"pilot_x": XS[:, :3]}, r"an example has the shape \(3,\) but those"),
    ({"x": np.where(np.arange(NUM_EXAMPLES)[:, None] == 3, np.nan, XS)}, "x .*nan in row 3"),
    ({"pilot_x": np.full((5, 4), np.inf, np.float32)}, "pilot_x .*inf in row 0"),
    ({"model": eqx.tree_at(lambda m: m.bias, MODEL, MODEL.bias * jnp.nan)}, "is not a number"),
    ({"model": object()}, "the model, a object, has no log_prior"),
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


BAD_OBJECTS = [
    (Sampler, {"num_chains": 0}, "num_chains is 0"),
    (Sampler, {"num_chains": -1}, "num_chains is -1"),
    (Sampler, {"num_chains": 16.0}, r"num_chains is 16\.0: it must be a whole number"),
    (
        Sampler,
        {"num_temperatures": 500.5},
        r"num_temperatures is 500\.5: it must be a whole",
    ),
    (Sampler, {"num_temperatures": 1}, "num_temperatures is 1: it must be at least 2"),
    (Sampler, {"memory_mb": 0}, "memory_mb is 0"),
    (Sampler, {"refit": -1}, "refit is -1: it must be at least 0"),
    (Sampler, {"kernel": HMC()}, r"kernel is aisle\.HMC.*: give a kernel"),
    (Sampler, {"kernel": Kernel(schedules.immediate)}, "schedule reaches 1 at once"),
    (
        Sampler,
        {"kernel": Kernel([0.0, 0.5, 1.0])},
        "num_temperatures is 500 but the schedule has 3",
    ),
    (ImportanceSampler, {"num_samples": 0}, "num_samples is 0: it must be at least 1"),
    (ImportanceSampler, {"num_samples": 2.0}, r"num_samples is 2\.0: it must be a whole number"),
    (Certificate, {"num_examples": -1}, "num_examples is -1"),
    (Certificate, {"tolerance": 0.0}, "tolerance is 0"),
    (Certificate, {"tolerance": float("nan")}, "tolerance is nan"),
    (Certificate, {"tolerance": "0.1"}, "tolerance is '0.1': it must be a number"),
    (Certificate, {"tolerance": 0.1, "num_examples": 0}, "tolerance is 0.1 but num_examples is 0"),
    (Certificate, {"tolerance": 0.1, "num_examples": 1}, "tolerance is 0.1 but num_examples is 1"),
    (Certificate, {"max_seconds": 0.0}, "max_seconds is 0"),
    (Certificate, {"max_seconds": float("inf")}, "max_seconds is inf"),
]


@pytest.mark.parametrize(("kind", "changes", "words"), BAD_OBJECTS, ids=str)
def test_what_cannot_be_is_refused_when_it_is_made(as_users_have_it, kind, changes, words):
    with pytest.raises(InputError, match=words) as caught:
        kind(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given", [Sampler(3, 7), ImportanceSampler(9), Certificate(tolerance=0.5)], ids=str
)
def test_an_object_can_be_typed_back(given):
    import aisle

    assert eval(repr(given), {"aisle": aisle}) == given


@pytest.mark.slow
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

    given = {"num_chains": np.int64(1), "num_temperatures": 2, "num_simulated": np.int64(2)}
    options = chosen(**given, max_seconds=np.float32(100), seed=np.int64(3))
    result = log_likelihood(Own(MODEL), encoder, Frame(), out=tmp_path, **options)
    assert np.all(np.isfinite(result.log_p))
    stored = json.loads((tmp_path / "result.json").read_text())
    assert (stored["settings"]["seed"], stored["settings"]["bdmc_examples"]) == (3, 2)
