import numpy as np
import pytest
from PIL import Image

from aisle.errors import InputError
from paper.figure1.picture import (
    CostCurve,
    DensityPanel,
    Distances,
    _density,
    save_comparison,
)

COVARIANCE = np.array([[1, 0.9], [0.9, 1]])
CURVE = CostCurve("one", "#0072B2", [10, 100], [0.5, 0.1], [0.01, 0.01])
PLOT = Distances("distance", [CURVE], 1.0, 0.01)


def panels(draws, columns=2):
    return [[DensityPanel("title", "note", "#0072B2", draws)] * columns] * 2


def save(path, draws, plot=PLOT):
    save_comparison(path, panels(draws), COVARIANCE, plot, "caption")
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"), float)


@pytest.mark.slow
def test_draws_show_in_their_colour(tmp_path):
    draws = np.random.default_rng(0).normal(size=(2000, 2))
    with_draws, without = (save(tmp_path / "a.png", d) for d in (draws, draws + 100))
    blue = [np.mean(image[..., 2] - image[..., 0] > 60) for image in (with_draws, without)]
    assert blue[0] > 2 * blue[1] + 0.01
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_the_density_is_normalised_and_stands_where_the_draws_are():
    draws = np.random.default_rng(0).normal([1.0, -0.5], 0.3, size=(20_000, 2))
    density = _density(draws)
    side = 6.4 / len(density)
    assert abs(density.sum() * side**2 - 1) < 1e-3
    centres = -3.2 + side * (np.arange(len(density)) + 0.5)
    assert abs(np.sum(density.sum(axis=1) * centres) * side**2 - 1) < 0.02
    assert abs(np.sum(density.sum(axis=0) * centres) * side**2 + 0.5) < 0.02


def test_a_distance_below_zero_can_be_drawn(tmp_path):
    below = PLOT._replace(curves=[CURVE._replace(distances=[0.5, -0.001])])
    save(tmp_path / "a.png", np.zeros((10, 2)), below)


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*: make room"):
        save(tmp_path / "folder.png", np.zeros((10, 2)))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]
