"""A run on disk: its configuration, metrics, checkpoints and weights; opening and resuming it.

Nothing is imported here: options must be there for `aisle train --help` without starting JAX.
"""
