"""Strict settings for every test; pyproject.toml has pytest check types and shapes."""

import gc
import os
from pathlib import Path

# Nearly all of the time of the tests is spent in compiling programs that run for a moment: compile
# quickly, not well. To be set before JAX starts; programs that tests start inherit it.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
    ]
)

import jax
import jaxtyping
import pytest
from jax.experimental.compilation_cache import compilation_cache

import compiling  # noqa: F401

# Traces are many objects that live on: looking through them for garbage takes a tenth of the time.
gc.set_threshold(50_000, 20, 20)
# Eight devices, so that sharded runs can be compared with unsharded ones on any machine.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")


# Linux allows a process 65,530 parts of memory. Every compiled program takes some, and XLA crashes
# when there are no more.
MANY_PARTS = 30_000


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Forget compiled programs before they are too many, as when all tests run in one process."""
    yield
    parts = Path("/proc/self/maps")
    if parts.exists() and parts.read_bytes().count(b"\n") > MANY_PARTS:
        jax.clear_caches()


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
    """Set options of JAX, and forget its cache of compiled programs."""
    for name, value in values.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def as_users_have_it(monkeypatch):
    """Leave wrong types to the library, as they are where no type checker is loaded."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
