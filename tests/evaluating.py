"""Short ways to say what an evaluation in a test is made of."""

from aisle import HMC, Certificate, Kernel, Sampler


def kernel(num_leapfrog=1, refresh=1.0, precondition=0.75, **changes):
    """Return the usual kernel of an evaluation with another transition."""
    transition = HMC(num_leapfrog, refresh, precondition)
    return Kernel.tuned(is_long=True, transition=transition, **changes)


def chosen(
    num_chains=2,
    num_temperatures=3,
    kernel=kernel(),  # noqa: B008
    refit=0,
    num_simulated=0,
    tolerance=None,
    max_seconds=None,
    **others,
):
    """Return the arguments of `log_likelihood`, its sampler and certificate made of numbers."""
    return {
        "sampler": Sampler(num_chains, num_temperatures, kernel, refit),
        "certificate": Certificate(num_simulated, tolerance, max_seconds),
        "show_progress": False,
        **others,
    }
