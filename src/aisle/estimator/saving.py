"""An estimator in one safetensors file, with JSON for what are no arrays."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from aisle.data.tables import Column
from aisle.errors import InputError
from aisle.estimator.starting import Form, build
from aisle.estimator.training import SCORE_KERNEL
from aisle.runs import weights
from aisle.runs.forms import stand_in

_KIND = "LatentDensity"


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator."""
    if path.suffix != weights.SUFFIX:
        raise InputError(f"is {str(path)!r}: it must end in {weights.SUFFIX}", argument="path")
    params = estimator.get_params(deep=False)
    if not isinstance(params["method"], str):
        raise InputError(
            "is an object of your own, which no file can hold: pickle the estimator, or give the "
            "name of a method",
            argument="method",
        )
    if not isinstance(params["random_state"], int | None):
        params["random_state"] = None
    names = getattr(estimator, "feature_names_in_", None)
    metadata = {
        "kind": _KIND,
        "params": {name: _plain(value) for name, value in params.items()},
        "form": estimator._form._asdict(),
        "num_updates": estimator.num_updates_,
        "columns": estimator.columns_ and [[c.name, c.kind, c.levels] for c in estimator.columns_],
        "library": estimator._library,
        "names": None if names is None else list(names),
    }
    weights.export(
        path, _arrays(estimator.model_, estimator.proposal_, estimator._ladder), metadata
    )


def load(kind: type, path: Path) -> Any:
    """Return a fitted estimator as `save` wrote it."""
    stored = weights.read_metadata(path)
    if stored.get("kind") != _KIND:
        raise InputError(f"{path} holds no {_KIND}: give a file that its `save` wrote")
    params = stored["params"]
    hidden = params["hidden"]
    estimator = kind(**{**params, "hidden": hidden and tuple(hidden)})
    plain = stored["form"]
    lists = {name: tuple(plain[name]) for name in ("families", "num_levels", "hidden")}
    form = Form(num_latents=plain["num_latents"], **lists)
    rows = stand_in(form.families, form.num_levels)
    networks = build(form, rows, 0)
    ladder = SCORE_KERNEL.ladder(params["num_temperatures"])
    static = eqx.filter((*networks, ladder), eqx.is_inexact_array, inverse=True)
    loaded = weights.load(path, _arrays(*networks, ladder))
    parts = tuple(loaded[name] for name in ("model", "proposal", "ladder"))
    estimator.model_, estimator.proposal_, estimator._ladder = eqx.combine(parts, static)
    estimator._form, estimator.num_updates_ = form, tuple(stored["num_updates"])
    columns, names, estimator._library = (stored[n] for n in ("columns", "names", "library"))
    estimator.columns_ = columns and tuple(Column(*column) for column in columns)
    estimator.n_features_in_ = len(form.families)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    return estimator


def _arrays(*parts: Any) -> dict[str, Any]:
    arrays = eqx.filter(parts, eqx.is_inexact_array)
    return dict(zip(("model", "proposal", "ladder"), arrays, strict=True))


def _plain(value: Any) -> Any:
    """Return a parameter as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | list):
        return [_plain(one) for one in value]
    return value
