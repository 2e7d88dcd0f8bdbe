import jax.numpy as jnp
import pytest

from aisle.annealing import presets
from aisle.errors import InputError

NOTHING = dict.fromkeys(presets.Preset._fields)


def test_the_kernel_of_the_paper():
    """L = 5 and even spacing from the paper, an acceptance of 0.6 from its scripts."""
    found = presets.complete(presets.TRAINING, "paper", NOTHING, has_scale=True)
    assert found == {
        "num_leapfrog": 5,
        "schedule": "linear",
        "precondition": 0,
        "momentum_refresh": 1,
        "jitter": 0,
        "target_accept": 0.6,
    }


@pytest.mark.parametrize("kind", [presets.TRAINING, presets.EVALUATION])
@pytest.mark.parametrize("name", ["tuned", "paper"])
def test_what_is_given_stays_and_what_is_not_is_filled_in(kind, name):
    given = NOTHING | {"num_leapfrog": 3, "momentum_refresh": 0.25, "other": 1}
    found = presets.complete(kind, name, given, has_scale=True)
    usual = kind[name]._asdict()
    assert found == usual | {"num_leapfrog": 3, "momentum_refresh": 0.25}


def test_only_the_fields_that_a_caller_has():
    found = presets.complete(presets.TRAINING, "tuned", {"jitter": None}, has_scale=True)
    assert found == {"jitter": 0}


@pytest.mark.parametrize(("given", "expected"), [(None, 0), (0.5, 0.5), (0.0, 0)])
def test_without_a_scale_nothing_is_preconditioned_unless_asked_for(given, expected):
    plan = NOTHING | {"precondition": given}
    found = presets.complete(presets.TRAINING, "tuned", plan, has_scale=False)
    assert found["precondition"] == expected


def test_an_unknown_kernel():
    with pytest.raises(InputError, match="kernel is 'best': choose from tuned, paper"):
        presets.complete(presets.TRAINING, "best", NOTHING, has_scale=True)


class Scaled:
    scale = 1.0


@pytest.mark.parametrize(("kind", "expected"), [(Scaled, True), (object, False)])
def test_a_proposal_is_asked_for_a_scale_without_running_it(kind, expected):
    def proposal(x):
        assert x["bits"].shape == (3,)
        return kind()

    assert presets.has_scale(proposal, {"bits": jnp.zeros(3)}) is expected
