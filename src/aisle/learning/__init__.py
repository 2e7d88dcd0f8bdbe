"""Gradient estimators, the trainer, its state and checkpoints."""
