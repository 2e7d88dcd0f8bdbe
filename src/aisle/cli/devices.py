"""How the command line sets JAX up, before its first use."""

import contextlib
import os


def use_all_cores() -> None:
    """On a CPU, make one device of each core: faster than one device with many threads.

    JAX's own setting, the environment variable JAX_NUM_CPU_DEVICES, goes first. Where JAX has
    already started, as in a program that calls the command line as a function, nothing changes.
    """
    import jax

    is_unset = jax.config.jax_num_cpu_devices < 1  # pyright: ignore[reportAttributeAccessIssue]
    if is_unset:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
