"""The front that users of scikit-learn know."""

from aisle.estimator.density import LatentDensity

__all__ = ["LatentDensity"]
