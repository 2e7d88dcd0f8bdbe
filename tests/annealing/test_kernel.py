import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aisle
from aisle.annealing import HMC, Kernel, schedules
from aisle.annealing.kernel import has_scale
from aisle.errors import InputError


def test_the_kernel_of_the_paper():
    """L = 5 and even spacing from the paper, an acceptance of 0.6 from its scripts."""
    assert Kernel.paper() == Kernel(schedules.linear, HMC(5, 1.0, 0.0), 0.6)


def test_the_usual_kernel_is_the_tuned_one_for_training():
    assert Kernel() == Kernel.tuned()
    assert Kernel().transition == HMC(2, 0.6, 0.75)
    assert Kernel.tuned(is_long=True).schedule is schedules.sigmoid


@pytest.mark.parametrize("make", [Kernel.tuned, Kernel.paper])
def test_changes_of_a_known_kernel_are_its_fields(make):
    changed = make(target_accept=0.7, schedule=schedules.geometric)
    assert (changed.target_accept, changed.schedule) == (0.7, schedules.geometric)
    assert changed.transition == make().transition
    with pytest.raises(TypeError, match="jitter"):
        make(jitter=0.1)


def test_a_schedule_is_a_function_or_the_temperatures_themselves():
    betas = [0.0, 0.1, 0.4, 1.0]
    kernels = [Kernel(given) for given in (betas, np.float32(betas), jnp.array(betas))]
    kernels.append(Kernel(lambda num_temperatures: np.array(betas)))
    for kernel in kernels:
        np.testing.assert_allclose(kernel.betas(3), betas, rtol=1e-6)
    assert kernels[0] == Kernel(tuple(betas))
    assert hash(kernels[0]) == hash(Kernel(tuple(betas)))
    with pytest.raises(InputError, match="num_temperatures is 5 but the schedule has 4 inverse"):
        kernels[0].betas(5)


def test_what_a_schedule_of_ones_own_returns_is_checked():
    with pytest.raises(InputError, match=r"betas runs from 0 to 0\.5: it must start at 0"):
        Kernel(lambda number: np.linspace(0, 0.5, number + 1)).betas(4)


def test_a_ladder_has_the_first_step_sizes_or_those_given():
    kernel = Kernel.paper()
    usual = kernel.ladder(3)
    np.testing.assert_allclose(usual.step_sizes, 0.1)
    np.testing.assert_allclose(usual.betas, schedules.linear(3))
    assert usual.transition is kernel.transition
    given = kernel.ladder(3, jnp.array([0.1, 0.2, 0.3]), last_move=False)
    np.testing.assert_allclose(given.step_sizes, [0.1, 0.2, 0.3])
    assert (given.num_moves, given.num_gradients) == (2, 11)


def test_temperatures_are_constants_while_a_program_is_compiled():
    @jax.jit
    def betas(x):
        found = Kernel(lambda n: jnp.linspace(0, 1, n + 1)).betas(4)
        assert isinstance(found, np.ndarray)
        return x + found

    np.testing.assert_allclose(betas(jnp.zeros(5)), np.linspace(0, 1, 5))


class Scaled:
    scale = 1.0


@pytest.mark.parametrize(("kind", "expected"), [(Scaled, True), (object, False)])
def test_a_proposal_without_a_scale_is_not_preconditioned(kind, expected):
    def proposal(x):
        assert x["bits"].shape == (3,)
        return kind()

    x = {"bits": jax.ShapeDtypeStruct((3,), jnp.float32)}
    assert has_scale(proposal, x) is expected
    suited = Kernel.tuned().suited_to(proposal, x).transition
    assert suited == HMC(2, 0.6, 0.75 if expected else 0.0)
    assert Kernel.paper().suited_to(proposal, x) == Kernel.paper()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HMC(0), "num_leapfrog is 0: it must be at least 1"),
        (lambda: HMC(2.5), "num_leapfrog is 2.5: it must be a whole number"),
        (lambda: HMC(refresh=0.0), "refresh is 0.0: it must be above 0 and at most 1"),
        (lambda: HMC(refresh="1"), "refresh is '1': it must be a number"),
        (lambda: HMC(precondition=-0.1), "precondition is -0.1: it must be finite, and 0 or more"),
        (lambda: Kernel(target_accept=1.0), "target_accept is 1.0: it must be between 0 and 1"),
        (lambda: Kernel([0, 0.5]), "betas runs from 0 to 0.5: it must start at 0, the proposal, "
         "and end at 1, the posterior"),
        (lambda: Kernel(transition=aisle.HMC), "transition is a type: give an object with init, "
         "step and step_reversed, such as aisle.HMC()"),
        (lambda: Kernel(transition="hmc"), "transition is a str: give an object with init, step "
         "and step_reversed, such as aisle.HMC()"),
    ],
)  # fmt: skip
def test_bad_values_get_one_clear_line(as_users_have_it, make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message
