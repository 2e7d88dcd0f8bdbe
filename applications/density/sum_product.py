"""Sum-product networks, by deeprob-kit in an environment of its own, which has no aisle.

`PYTHON applications/density/sum_product.py SPLITS.npz FOUND.json`, where PYTHON has deeprob-kit
installed, learns networks from `train`, chooses one by `valid`, and writes log p of `test`.
"""

# pyright: reportMissingImports=false
import itertools
import json
import sys
from pathlib import Path

import numpy as np

# Rows below which a part is not divided further, and the least dependence of two columns that
# keeps them together.
_ROWS, _DEPENDENCE = (50, 200), (3.0, 15.0)
# Columns from which on dependence is looked for among some only, as all pairs would take hours.
_MANY_COLUMNS = 200


def main() -> None:
    """Learn, choose and write."""
    from deeprob.spn.algorithms.inference import log_likelihood
    from deeprob.spn.learning.wrappers import learn_estimator
    from deeprob.spn.structure.leaf import Bernoulli

    splits, found = Path(sys.argv[1]), Path(sys.argv[2])
    with np.load(splits) as file:
        train, valid, test = (file[part].astype(np.float32) for part in ("train", "valid", "test"))
    columns = train.shape[1]
    best, value = None, -np.inf
    for rows, dependence in itertools.product(_ROWS, _DEPENDENCE):
        network = learn_estimator(
            train,
            [Bernoulli] * columns,
            [[0, 1]] * columns,
            # Leaves are trees of bits.
            learn_leaf="binary-clt",
            learn_leaf_kwargs={"to_pc": False},
            split_rows="kmeans",
            split_cols="gvs" if columns <= _MANY_COLUMNS else "rgvs",
            split_cols_kwargs={"p": dependence},
            min_rows_slice=rows,
            random_state=0,
            verbose=False,
        )
        mean = log_likelihood(network, valid).mean()
        if mean > value:
            best, value = network, mean
    log_p = np.asarray(log_likelihood(best, test), float).reshape(-1)
    found.write_text(json.dumps({"log_p": log_p.tolist()}))


if __name__ == "__main__":
    main()
