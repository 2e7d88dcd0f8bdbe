"""Gradient estimators, the trainer, its state and checkpoints."""

from aisle.learning.trainer import Fitted, fit

__all__ = ["Fitted", "fit"]
