"""Training: methods, recipes, one update, and the loop. It reads and writes no files."""

from aisle.learning import rates
from aisle.learning.looks import EarlyStopping, Look, Validation
from aisle.learning.methods import AIS, IWAE, MHHMC, VAE, DReG
from aisle.learning.optimizers import Adam, Muon
from aisle.learning.protocol import Losses, Method, Metrics
from aisle.learning.recipe import Phase, Recipe

__all__ = [
    "AIS",
    "IWAE",
    "MHHMC",
    "VAE",
    "Adam",
    "DReG",
    "EarlyStopping",
    "Look",
    "Losses",
    "Method",
    "Metrics",
    "Muon",
    "Phase",
    "Recipe",
    "Validation",
    "rates",
]
