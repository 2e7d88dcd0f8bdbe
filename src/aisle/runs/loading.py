"""Networks with their weights, from whatever holds them."""

from pathlib import Path

from aisle.runs.networks import Weights
from aisle.runs.opening import load_weights, open_run
from aisle.runs.weights import SUFFIX
from aisle.types import Model, Proposal

# The weights in a folder of `aisle export`.
EXPORTED = f"model{SUFFIX}"


def load(path: str | Path, model: Model | None = None, proposal: Proposal | None = None) -> Weights:
    """Load the (model, proposal) of what `aisle export` wrote, a folder or a file, or of a run.

    Example:
        >>> model, proposal = aisle.load(FIRST_RUN)
        >>> type(model).__name__
        'OneLayerModel'

    Args:
        path: of the folder, or of the .safetensors file.
        model: networks of the same kind, for weights of a model of your own.
        proposal: likewise.
    """
    path = Path(path)
    if path.suffix == SUFFIX and not path.is_dir():
        return load_weights(path, model, proposal)
    if (path / EXPORTED).is_file():
        return load_weights(path / EXPORTED, model, proposal)
    run = open_run(path, model, proposal)
    return run.model, run.proposal
