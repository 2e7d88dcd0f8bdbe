"""Pictures of examples, of any shape."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from aisle.report.page import panels
from aisle.report.page.writing import _resource as resource
from aisle.report.pictures import Panel
from pages import MINUS, elements, page, pixels, read_log_p


def test_the_worst_examples_are_shown_with_their_likelihoods(first, one):
    worst = one.one("div", class_="worst").all("figure")
    log_p = read_log_p(first)
    order = np.argsort(log_p)[:8]
    for figure, index in zip(worst, order, strict=True):
        caption = f"{log_p[index]:.1f}".replace("-", MINUS)
        assert figure.one("figcaption").words == f"{caption}no. {index}"
        image = figure.one("img")
        assert f"Test example {index}, log p(x) = {caption} nats" in image.attributes["alt"]
        picture = pixels(image)
        factor = len(picture) // 6
        example = first.dataset.test.take(np.array([index]))[0].reshape(6, 4)
        expected = 0.06 + 0.94 * np.kron(example, np.ones((factor, factor)))
        np.testing.assert_allclose(picture, expected, atol=0.003)


def test_pictures_of_a_run(one):
    gallery = one.one("div", class_="gallery")
    captions = [figure.one("figcaption").words for figure in gallery.all("figure")]
    assert captions == ["Samples", "Reconstructions", "Interpolations"]
    samples, pairs, ways = (pixels(image) for image in gallery.all("img"))
    # Eight samples in a row; four examples above their reconstructions; one way in eight steps.
    assert samples.shape == ways.shape
    assert pairs.shape[0] > 1.9 * samples.shape[0]
    assert pairs.shape[1] < samples.shape[1]


def test_vectors_are_drawn_as_lines(bare):
    root = elements(page(bare))
    assert not root.all("img")
    drawings = root.one("div", class_="gallery").all("svg", class_="lines")
    assert [len(one.all("polyline")) for one in drawings] == [8, 8, 8]
    points = drawings[0].all("polyline")[0].attributes["points"].split()
    assert len(points) == 24


def test_lines_fill_their_place():
    drawing = elements(panels.draw(Panel("", np.array([[0.0, 2.0], [1.0, 1.0]])), (2,), "label"))
    lines = [e.attributes["points"] for e in drawing.all("polyline")]
    assert lines == ["6.0,70.0 94.0,6.0", "106.0,38.0 194.0,38.0"]


@pytest.mark.parametrize("number", [1, 5000])
def test_short_and_long_vectors_are_lines(number):
    examples = np.random.default_rng(0).normal(size=(3, number))
    drawing = elements(panels.draw(Panel("", examples), (number,), "label"))
    lengths = [len(e.attributes["points"].split()) for e in drawing.all("polyline")]
    assert len(lengths) == 3
    assert set(lengths) == ({2} if number == 1 else {120})


@pytest.mark.parametrize("shape", [(500, 300), (8, 8), (1, 900), (28, 28)], ids=str)
def test_pictures_of_any_size_become_small(shape):
    examples = np.random.default_rng(0).uniform(size=(3, *shape))
    panel = Panel("", examples.reshape(3, -1), columns=2)
    picture = pixels(elements(panels.draw(panel, shape, "label")).one("img"))
    assert 56 <= max(picture.shape) <= 300
    # Three pictures in rows of two: nothing stands in the last place.
    assert picture[-1, -1] == 0
    assert picture[0, 0] > 0.05
    mean = picture[picture > 0].mean()
    assert abs(mean - (0.06 + 0.94 * 0.5)) < 0.05


def test_values_beyond_0_and_1_are_scaled_to_their_range():
    examples = np.array([[-2.0, 0.0, 2.0, 6.0]])
    picture = pixels(elements(panels.draw(Panel("", examples, 1), (2, 2), "label")).one("img"))
    corners = picture[:: len(picture) - 1, :: len(picture) - 1]
    np.testing.assert_allclose(corners, 0.06 + 0.94 * np.array([[0, 0.25], [0.5, 1]]), atol=0.003)


def test_pictures_with_three_channels_are_in_colour():
    """Two pictures of one row: red and green beside half blue and black; values up to 2."""
    values = [[2, 0, 0, 0, 2, 0], [0, 0, 1, 0, 0, 0]]
    image = elements(panels.draw(Panel("", np.array(values, float), 3), (1, 2, 3), "label"))
    image = image.one("img")
    assert image.attributes["class"] == "pictures"
    content = image.attributes["src"].removeprefix("data:image/png;base64,")
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert picture.mode == "RGBA"
        row = np.asarray(picture)[0].tolist()
    runs = [color for i, color in enumerate(row) if i == 0 or color != row[i - 1]]
    red, green, blue = [255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 128, 255]
    nothing = [0, 0, 0, 0]
    assert runs == [red, green, nothing, blue, [0, 0, 0, 255], nothing]


def test_one_channel_is_ink():
    examples = np.random.default_rng(0).uniform(size=(3, 24))
    with_channel, without = (
        panels.draw(Panel("", examples), shape, "label") for shape in ((6, 4, 1), (6, 4))
    )
    assert with_channel == without
    assert 'class="pictures ink"' in with_channel
    # By night only ink is turned into light: a colour would become another one.
    assert re.findall(r"(\S+) \{ filter: invert", resource("page.css")) == ["img.ink"]


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 2, 2, 3)], ids=str)
def test_other_shapes_are_lines(shape):
    drawing = panels.draw(Panel("", np.zeros((2, 24))), shape, "label")
    assert drawing.startswith('<svg class="lines"')
