"""The page as a whole: its form, what it needs and what it may not do."""

import re

import numpy as np
import pytest

from aisle.errors import InputError
from aisle.report.page.writing import _resource as resource, render, save_page
from pages import config, elements, everything, make_run, page

PAGES = {
    "one": ["first"],
    "several": ["first", "second"],
    "bare": ["bare"],
    "mixed": ["bare", "first", "second"],
}


@pytest.fixture(scope="module", params=PAGES.values(), ids=PAGES.keys())
def text(request):
    return page(*map(request.getfixturevalue, request.param))


def test_pages_are_well_formed_and_can_be_read_aloud(text):
    root = elements(text)
    assert root.one("html").attributes["lang"] == "en"
    assert len(root.all("h1")) == 1
    assert root.one("title").words
    for image in root.all("img"):
        assert image.attributes["alt"].strip()
    for drawing in root.all("svg"):
        is_hidden = drawing.attributes.get("aria-hidden") == "true"
        assert is_hidden or (
            drawing.attributes["role"] == "img" and drawing.attributes["aria-label"].strip()
        )
    for table in root.all("table"):
        assert table.one("caption").words
        assert table.all("th", scope="col") and table.all("th", scope="row")
        assert all("scope" in th.attributes for th in table.all("th"))
        widths = [
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children)
            for row in table.all("tr")
        ]
        assert len(set(widths)) == 1


def test_names_on_a_page_are_unique_and_links_lead_somewhere(text):
    root = elements(text)
    names = [e.attributes["id"] for e in everything(root) if "id" in e.attributes]
    assert len(names) == len(set(names))
    links = [a.attributes["href"].removeprefix("#") for a in root.all("a")]
    links += [e.attributes["href"].removeprefix("#") for e in root.all("use")]
    labels = [e.attributes.get("aria-labelledby") for e in everything(root)]
    links += re.findall(r"url\(#([^)]*)\)", text)
    assert {*links, *filter(None, labels)} <= set(names)


def test_pages_fetch_nothing_and_run_nothing(text):
    root = elements(text)
    assert not root.all("script")
    for element in everything(root):
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action", "poster"):
                assert value.startswith(("data:", "#"))
    style = root.one("style").text
    assert "@import" not in style and "url(" not in style
    (policy,) = (m for m in root.all("meta") if "http-equiv" in m.attributes)
    assert policy.attributes["http-equiv"] == "Content-Security-Policy"
    assert policy.attributes["content"].startswith("default-src 'none'; img-src data:; style-src")


def test_drawings_take_their_colours_from_the_page(text):
    root = elements(text)
    style = root.one("style").text
    known = set(re.findall(r"(--[a-z0-9-]+):", style))
    body = text[text.index("<body>") :]
    assert not re.findall(r"(?:fill|stroke|color)[:=]\s*\"?#", body)
    assert "font-family" not in body
    assert set(re.findall(r"var\((--[a-z0-9-]+)\)", body + style)) <= known


def test_a_small_page(text):
    assert len(text) < 700_000


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


def test_text_has_contrast_by_day_and_by_night():
    style = resource("page.css")
    day, night = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    colors = dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", day))
    for changes in ({}, dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6});", night))):
        chosen = colors | changes
        for name, value in chosen.items():
            if name in ("--paper", "--raised", "--line"):
                continue
            for ground in ("--paper", "--raised"):
                light, dark = sorted(map(luminance, (value, chosen[ground])))[::-1]
                contrast = (light + 0.05) / (dark + 0.05)
                # Words need more than lines do; lines of a run are named and marked besides.
                assert contrast > (1.9 if name.startswith("--run") else 4.5), (name, ground)


def test_the_seed_decides_what_is_drawn(bare):
    one, same, other = (render([bare], num_examples=8, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other.replace("seed 2", "seed 1")


def test_many_runs_are_counted_and_told_apart(home):
    runs = [make_run(home / f"many{i}", config("vae"), metrics=[]) for i in range(8)]
    root = elements(page(*runs))
    assert root.one("h1").words == "8 runs on things"
    table = root.one("section", id="comparison").one("tbody")
    lines = [s.one("line").attributes for s in table.all("svg", class_="swatch")]
    assert len({(line["stroke"], line["stroke-dasharray"]) for line in lines}) == 8


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch, bare):
    path = tmp_path / "report.html"
    path.write_text("before")
    save_page(path, [bare], num_examples=2, seed=0)
    assert path.read_text(encoding="utf-8") == render([bare], num_examples=2, seed=0)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    before = path.read_bytes()

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InputError, match=r"cannot write .* \(No space left on device\)"):
        save_page(path, [bare], num_examples=2, seed=0)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_page_knows_where_a_name_is_not_text(tmp_path, bare):
    odd = bare._replace(train_command="caf\udce9")
    save_page(tmp_path / "a.html", [odd], num_examples=2, seed=0)
    assert "caf?" in (tmp_path / "a.html").read_text(encoding="utf-8")
