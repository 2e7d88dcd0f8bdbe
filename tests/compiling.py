"""Quick compilation of random bits, for the tests and for the programs that they start."""

import contextlib

from jax.interpreters import mlir

# JAX's random bits are a loop on CPUs, which XLA takes five times as long to compile as the same
# steps written out, as they are on other devices: the bits are the same. Versions of JAX that keep
# them elsewhere compile the loop.
with contextlib.suppress(ImportError, AttributeError):
    from jax._src.random import threefry2x32

    mlir.register_lowering(
        threefry2x32.threefry2x32_p, threefry2x32._threefry2x32_lowering_rule, platform="cpu"
    )
