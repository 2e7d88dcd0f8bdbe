import jax
import pytest


@pytest.fixture(scope="module")
def quick_compilation():
    """Halve the time to compile: what is tested here holds for any program of the same maths."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
