"""Doors to other frameworks: their networks and models as aisle's own."""

from aisle.models.doors.flax import from_flax
from aisle.models.doors.numpyro import from_numpyro
from aisle.models.doors.torch import from_torch, to_torch

__all__ = ["from_flax", "from_numpyro", "from_torch", "to_torch"]
