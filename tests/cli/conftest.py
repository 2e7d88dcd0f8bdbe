"""Commands compile quickly, and once for this process and those that it starts."""

import os

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Set JAX up for a module; return the environment for processes to be like this one."""
    values = {
        "jax_compilation_cache_dir": str(tmp_path_factory.getbasetemp() / "xla"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_disable_most_optimizations": True,
    }
    before = {name: jax.config.values[name] for name in values}
    _set_up_jax(values)
    # As many devices as in this process, or other sums would be formed.
    values["jax_num_cpu_devices"] = jax.device_count()
    yield os.environ | {name.upper(): str(value) for name, value in values.items()}
    _set_up_jax(before)


def _set_up_jax(values):
    for name, value in values.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
