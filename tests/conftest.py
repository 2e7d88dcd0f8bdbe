"""Strict settings for every test; pyproject.toml has pytest check types and shapes."""

import jax

# Eight devices, so that sharded runs can be compared with unsharded ones on any machine.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
