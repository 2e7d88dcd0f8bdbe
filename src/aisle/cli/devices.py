"""How the command line sets JAX up, before its first use."""

import contextlib
import os
import sys

from aisle.cli.options import DistributedOptions
from aisle.errors import InputError, first_line


def set_up_jax(joined: DistributedOptions | None = None) -> None:
    """Use all cores, keep compiled programs for the next start, and join other processes.

    JAX's own settings, the environment variables JAX_NUM_CPU_DEVICES and JAX_COMPILATION_CACHE_DIR,
    go first. Where JAX has already started, as in a program that calls the command line as a
    function, its devices stay as they are.
    """
    import jax

    # On a CPU one device for each core is faster than one device with many threads.
    if jax.config.values["jax_num_cpu_devices"] < 1:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", _num_cores())
    if jax.config.values["jax_compilation_cache_dir"] is None:
        import pooch

        jax.config.update("jax_compilation_cache_dir", str(pooch.os_cache("aisle") / "compiled"))
    if joined is not None:
        _join(joined)


def _num_cores() -> int:
    """Count the cores that this process may use: a job on a cluster may not have them all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _join(joined: DistributedOptions) -> None:
    """Start JAX's distributed runtime; only the first process then prints."""
    where = (joined.coordinator, joined.num_processes, joined.process_id)
    if not joined.distributed:
        if any(value is not None for value in where):
            raise InputError("--coordinator, --num-processes and --process-id need --distributed")
        return
    if any(value is None for value in where) and any(value is not None for value in where):
        raise InputError("give all of --coordinator, --num-processes and --process-id, or none")
    import jax

    try:
        jax.distributed.initialize(*where)
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"the processes could not be joined ({first_line(error)}): see docs/cluster.md"
        ) from None
    if jax.process_index():
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
