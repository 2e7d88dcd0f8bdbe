import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from aisle.errors import InputError
from aisle.models import DiagonalNormal, LinearGaussian
from aisle.report.pictures import (
    Panel,
    image_url,
    picture_size,
    reconstruction_panel,
    reconstructions,
    sample_observations,
    sample_panel,
    save_panels,
)
from measures import z_score
from pages import pixels

pytestmark = pytest.mark.usefixtures("quick_compilation")

# x = z + noise of the same size and dimension: a key that serves twice doubles or cancels z.
NOISY = LinearGaussian(jnp.eye(2), jnp.zeros(2), jnp.array(0.0))


class Telling(eqx.Module):
    """A model that tells E[x|z], of the shape (3, 2)."""

    def log_prior(self, z):
        return -jnp.sum(z**2) / 2

    def log_likelihood(self, x, z):
        return -jnp.sum((x - self.mean_observation(z)) ** 2)

    def sample_prior(self, key):
        return jax.random.normal(key, (2,))

    def sample_observation(self, key, z):
        raise AssertionError("the mean is better to look at")

    def mean_observation(self, z):
        return jnp.stack([z, 2 * z, 3 * z])


def sharp(x):
    """A proposal that is all but certain of z = x."""
    return DiagonalNormal(x, jnp.full(x.shape, 1e-6))


def dark_share(path):
    return float(np.mean(np.asarray(Image.open(path).convert("L")) < 128))


def test_pictures_become_a_png(tmp_path):
    path = tmp_path / "grid.png"
    save_panels(path, [Panel("", np.ones((16, 64))), Panel("", np.zeros((16, 64)))], (8, 8))
    with Image.open(path) as image:
        image.verify()
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.size == (1500, 810)
        dark = np.asarray(image.convert("L")) < 128
    assert dark[:, :750].mean() > 0.1
    assert dark[:, 750:].mean() == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["grid.png"]


def test_pictures_stand_row_by_row(tmp_path):
    """Three pictures in rows of two: only the lower right place stays blank."""
    path = tmp_path / "grid.png"
    save_panels(path, [Panel("", np.ones((3, 64)), columns=2)], (8, 8))
    dark = np.asarray(Image.open(path).convert("L")) < 128
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    grid = dark[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    middle, centre = grid.shape[0] // 2, grid.shape[1] // 2
    shares = [
        part[60:-60, 60:-60].mean()
        for half in (grid[:middle], grid[middle:])
        for part in (half[:, :centre], half[:, centre:])
    ]
    assert min(shares[:3]) == 1
    assert shares[3] == 0


@pytest.mark.slow
def test_pictures_with_three_channels_are_in_colour(tmp_path):
    """Red and blue side by side, in a row that has room for a third."""
    path = tmp_path / "grid.png"
    examples = np.zeros((2, 8, 8, 3))
    examples[0, ..., 0] = examples[1, ..., 2] = 1
    save_panels(path, [Panel("", examples.reshape(2, -1), columns=3)], (8, 8, 3))
    pixels = np.asarray(Image.open(path).convert("RGB"))
    colors, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    most = [tuple(color) for color in colors[np.argsort(counts)[-3:]].tolist()]
    assert sorted(most) == [(0, 0, 255), (255, 0, 0), (255, 255, 255)]
    columns = [np.flatnonzero((pixels == color).all(axis=2).any(axis=0)) for color in most[:2]]
    reds, blues = columns if most[0] == (255, 0, 0) else columns[::-1]
    assert reds.max() < blues.min()


def test_one_channel_is_drawn_like_none(tmp_path):
    panels = [Panel("", np.random.default_rng(0).uniform(size=(5, 24)))]
    for name, shape in (("a.png", (6, 4)), ("b.png", (6, 4, 1))):
        save_panels(tmp_path / name, panels, shape)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("shape", [(30,), (3, 2, 5), (2, 2, 2, 3)], ids=str)
def test_other_shapes_are_no_pictures(shape):
    assert picture_size(shape) is None


def test_tables_become_strips_of_fields_and_not_curves(tmp_path):
    """Two examples of two features of different scales: each is scaled by itself."""
    path = tmp_path / "strips.png"
    save_panels(path, [Panel("", np.array([[0.0, 1000.0], [1.0, 0.0]]), columns=1)], (2,))
    grey = np.asarray(Image.open(path).convert("L"))
    rows, columns = (np.flatnonzero((grey < 128).any(axis=axis)) for axis in (1, 0))
    grid = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    corners = grid[10 :: len(grid) - 20, 10 :: grid.shape[1] - 20]
    assert corners.tolist() == [[255, 0], [0, 255]]


def test_constant_tables_are_drawn(tmp_path):
    save_panels(tmp_path / "flat.png", [Panel("", np.full((8, 30), 7.0))], (30,))
    assert (tmp_path / "flat.png").stat().st_size > 0


def test_a_title_is_drawn(tmp_path):
    save_panels(tmp_path / "titled.png", [Panel("samples", np.zeros((8, 64)))], (8, 8))
    assert dark_share(tmp_path / "titled.png") > 0


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    for path in ("absent/x.png", "file/x.png", "folder.png"):
        with pytest.raises(InputError, match=r"cannot write .*: make room") as caught:
            save_panels(tmp_path / path, [Panel("", np.ones((8, 64)))], (8, 8))
        assert "\n" not in str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder.png"]


def test_models_that_tell_the_mean_show_it():
    z = jnp.array([[1.0, -2.0], [0.5, 4.0]])
    xs = jnp.concatenate([z, 2 * z, 3 * z], axis=1)
    shown = reconstructions(jax.random.key(0), Telling(), lambda x: sharp(x[:2]), xs)
    np.testing.assert_allclose(shown, xs, atol=1e-4)
    samples = sample_observations(jax.random.key(0), Telling(), 5)
    assert samples.shape == (5, 6)
    np.testing.assert_allclose(samples[:, 2:4], 2 * samples[:, :2], rtol=1e-6)
    assert len(np.unique(np.asarray(samples[:, 0]))) == 5


def test_other_models_show_a_sample():
    """Drawn from p(x): its variance is that of W z, 1, plus that of the noise, 1."""
    samples = np.asarray(sample_observations(jax.random.key(0), NOISY, 20_000))
    for column in samples.T:
        assert abs(z_score(column, 0)) < 4
        assert abs(z_score(column**2, 2)) < 4


def test_reconstructions_of_other_models_are_a_sample():
    """As q(z|x) = N(x, I) here, a reconstruction is x plus two independent units of noise."""
    xs = jnp.tile(jnp.array([3.0, -1.0]), (20_000, 1))

    def unit(x):
        return DiagonalNormal(x, jnp.ones(2))

    shown = np.asarray(reconstructions(jax.random.key(0), NOISY, unit, xs)) - np.asarray(xs)
    for column in shown.T:
        assert abs(z_score(column, 0)) < 4
        assert abs(z_score(column**2, 2)) < 4


def test_a_panel_of_samples():
    panel = sample_panel(jax.random.key(0), Telling(), 5)
    wanted = sample_observations(jax.random.key(0), Telling(), 5)
    assert panel.title == "samples"
    np.testing.assert_array_equal(panel.examples, wanted)


@pytest.mark.parametrize("number", [8, 11, 3])
def test_each_example_stands_above_its_reconstruction(number):
    """Their places in the grid are one row apart, also where a row is not full."""
    quiet = eqx.tree_at(lambda m: m.log_sigma, NOISY, jnp.array(-12.0))
    xs = 10 + jnp.arange(2.0 * number).reshape(number, 2)
    panel = reconstruction_panel(jax.random.key(0), quiet, sharp, xs)
    for i, x in enumerate(np.asarray(xs)):
        row, column = divmod(i, panel.columns)
        place = 2 * row * panel.columns + column
        np.testing.assert_allclose(panel.examples[place], x, atol=1e-2)
        np.testing.assert_allclose(panel.examples[place + panel.columns], x, atol=1e-2)


def test_images_on_the_page_are_ink_on_a_transparent_ground():
    """Three pictures of 2 x 2 in rows of two, with a gap of one pixel: the last place is empty."""
    examples = np.array([[0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]], float)
    picture = pixels(image_url(Panel("", examples, 2), (2, 2, 1)))
    assert picture.shape == (5, 5, 2)
    assert not picture[..., 0].any()
    opacity = picture[..., 1] / 255
    np.testing.assert_allclose(opacity[:2, :2], [[0.06, 0.06], [0.06, 1]], atol=0.003)
    np.testing.assert_allclose(opacity[:2, 3:], 1)
    assert not opacity[2].any() and not opacity[:, 2].any() and not opacity[3:, 3:].any()


def test_values_beyond_0_and_1_are_scaled_to_their_range():
    picture = pixels(image_url(Panel("", np.array([[-2.0, 0.0, 2.0, 6.0]]), 1), (2, 2, 1)))
    expected = 0.06 + 0.94 * np.array([[0, 0.25], [0.5, 1]])
    np.testing.assert_allclose(picture[..., 1] / 255, expected, atol=0.003)


def test_images_with_three_channels_are_in_colour():
    """Two pictures of one row: red and green beside half blue and black; values up to 2."""
    values = np.array([[2, 0, 0, 0, 2, 0], [0, 0, 1, 0, 0, 0]], float)
    (row,) = pixels(image_url(Panel("", values), (1, 2, 3))).tolist()
    red, green, blue = [255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 128, 255]
    nothing, black = [0, 0, 0, 0], [0, 0, 0, 255]
    assert row[:5] == [red, green, nothing, blue, black]
    assert all(pixel == nothing for pixel in row[5:])


def test_large_pictures_become_small():
    examples = np.random.default_rng(0).uniform(size=(3, 500 * 300))
    assert max(pixels(image_url(Panel("", examples, 2), (500, 300, 1))).shape) < 300


def test_examples_may_have_the_shape_of_pictures():
    """As a model by convolutions sees them."""
    xs = np.arange(18.0).reshape(3, 3, 2)
    panel = reconstruction_panel(jax.random.key(0), Telling(), lambda x: sharp(x[0]), xs)
    assert panel.examples.shape == (6, 6)
    np.testing.assert_array_equal(panel.examples[:3], xs.reshape(3, 6))
