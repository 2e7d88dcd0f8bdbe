"""Annealing kernels at equal cost on a trained model."""
