"""How the command line sets JAX up, before its first use."""

import contextlib
import os


def set_up_jax() -> None:
    """Use all cores, and keep compiled programs for the next start.

    JAX's own settings, the environment variables JAX_NUM_CPU_DEVICES and JAX_COMPILATION_CACHE_DIR,
    go first. Where JAX has already started, as in a program that calls the command line as a
    function, its devices stay as they are.
    """
    import jax

    # On a CPU one device for each core is faster than one device with many threads.
    if jax.config.values["jax_num_cpu_devices"] < 1:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    if jax.config.values["jax_compilation_cache_dir"] is None:
        import pooch

        jax.config.update("jax_compilation_cache_dir", str(pooch.os_cache("aisle") / "compiled"))
