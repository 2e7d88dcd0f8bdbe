"""Strict settings for every test; pyproject.toml has pytest check types and shapes."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

# Eight devices, so that sharded runs can be compared with unsharded ones on any machine.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module")
def quick_compilation(tmp_path_factory):
    """Compile in half the time, and the same program once only; return these settings of JAX.

    What is tested with it holds for any program of the same maths.
    """
    values = {
        "jax_compilation_cache_dir": str(tmp_path_factory.getbasetemp() / "xla"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_disable_most_optimizations": True,
    }
    before = {name: jax.config.values[name] for name in values}
    set_up_jax(values)
    yield values
    set_up_jax(before)


def set_up_jax(values):
    for name, value in values.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
