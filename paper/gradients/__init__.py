"""Bias and noise of gradient estimators on a trained model."""
