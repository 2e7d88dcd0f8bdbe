"""What XLA is told beyond its defaults, where the time of a run goes."""

import jax


def compiler_options() -> dict[str, int] | None:
    """Return the options for programs that run chains, to be given to `jax.jit`.

    XLA's code for CPUs uses vectors of 256 bits by default even where the machine has 512, which
    slows the functions between the matrix products down; where it has not, nothing changes.
    """
    return {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None
