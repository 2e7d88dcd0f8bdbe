"""`aisle report`, from the arguments to a page in a browser."""

import dataclasses
import html
import json
import os
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest

from aisle.cli.main import parse
from aisle.experiments import cells, demo, training
from aisle.experiments.cells import Cell, Finished, Row
from aisle.experiments.options import TrainConfig
from aisle.statistics import Mean
from commands import assert_mistake, call, contents, run

pytestmark = pytest.mark.slow

SMALL = ("--num-hidden", "8", "--num-latents", "2", "--epochs", "1")
CHAINS = ("--method", "ais", "-K", "2", "-T", "3")
EVALUATION = ("-C", "2", "-T", "4", "--num-examples", "12", "--bdmc-examples", "6")
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def home(tmp_path_factory, compiled_once):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def runs(home):
    """Two evaluated runs on digits, with and without chains; one has a space in its name."""
    folders = home / "plain", home / "with chains"
    for folder, options in zip(folders, (("--method", "vae"), CHAINS), strict=True):
        rest = ("--batch-size", "500", "--out", folder)
        assert call("train", "digits", *SMALL, *options, *rest) == 0
    assert call("evaluate", folders[0], *EVALUATION) == 0
    assert call("evaluate", folders[1], *EVALUATION, "--importance-samples", "7") == 0
    return folders


@pytest.fixture(scope="module")
def curves(home):
    """A run on vectors of the user's own, without an evaluation."""
    values = np.random.default_rng(0).normal(size=(100, 24)).astype(np.float32) + 20
    np.save(home / "my curves.npy", values)
    options = ("--binarize", "none", "--likelihood", "gaussian", "--batch-size", "30")
    folder = home / "curves"
    data = home / "my curves.npy"
    assert call("train", data, *SMALL, "--method", "vae", *options, "--out", folder) == 0
    return folder


@pytest.fixture(scope="module")
def page(runs):
    path = runs[0].parent / "page.html"
    assert call("report", *runs, "--out", path, "--num-examples", 8) == 0
    return path


def result(folder):
    (path,) = folder.glob("evaluations/*/result.json")
    return json.loads(path.read_text())


def commands(text, section="comparison"):
    """Return the commands of a page from a section on, as one reads them."""
    text = text[text.index(f'<section id="{section}"') :]
    found = re.findall(r"<code>(.*?)</code>", text)
    return [html.unescape(re.sub(r"<[^>]*>", "", command)) for command in found]


def test_a_report_is_one_file_and_says_where_it_is(capsys, tmp_path, runs):
    before = contents(runs[0].parent)
    path = tmp_path / "x.html"
    code, out, err = run(capsys, "report", *runs, "--out", path, "--num-examples", 8)
    assert (code, out.strip(), err) == (0, str(path), "")
    assert list(tmp_path.iterdir()) == [path]
    after = contents(runs[0].parent)
    assert {k: v for k, v in after.items() if k in before} == before


def test_the_page_has_the_figures_of_the_results(page, runs):
    text = page.read_text(encoding="utf-8")
    values = {float(value) for value in re.findall(r'<data value="([^"]*)">', text)}
    for folder in runs:
        found = result(folder)
        assert found["log_likelihood"]["mean"] in values
        assert {found["bdmc"][name] for name in ("lower", "upper", "gap")} <= values
    importance = result(runs[1])["importance"]
    assert {importance[name]["mean"] for name in ("bound", "elbo")} <= values
    log_p = []
    for folder in runs:
        (path,) = folder.glob("evaluations/*/examples.npz")
        with np.load(path) as arrays:
            log_p.append(arrays["log_p"])
    assert float(np.mean(log_p[1] - log_p[0])) in values
    # The names of the evaluations' folders tell what they are of.
    assert "does not tell" not in text


def test_the_commands_reproduce_the_runs(page, runs):
    found = commands(page.read_text(encoding="utf-8"), "settings")
    for folder in runs:
        (train,) = (c for c in found if c.endswith(f" --out {shlex.quote(str(folder))}"))
        command = parse(shlex.split(train)[1:])
        assert training.complete(command._config()) == training.open_config(folder)
        assert command.out == folder
        # A method without chains has no use for their options.
        assert ("--num-leapfrog" in train) == ("--method vae" not in train)
        quoted = shlex.quote(str(folder))
        (evaluate,) = (c for c in found if c.startswith(f"aisle evaluate {quoted} --"))
        command = parse(shlex.split(evaluate)[1:])
        settings = result(folder)["settings"]
        sampler = dataclasses.asdict(command.config.sampler)
        assert {k: v for k, v in sampler.items() if k in settings} == {
            k: v for k, v in settings.items() if k in sampler
        }
        assert (command.config.split, command.config.num_examples) == ("test", 12)


def test_a_printed_evaluation_is_found_again(capsys, page, runs):
    """The command on the page leads to the folder that is there, and not to a new one."""
    found = commands(page.read_text(encoding="utf-8"), "settings")
    (evaluate,) = (c for c in found if c.startswith(f"aisle evaluate {runs[0]} --"))
    before = sorted((runs[0] / "evaluations").iterdir())
    assert run(capsys, *shlex.split(evaluate)[1:])[0] == 0
    assert sorted((runs[0] / "evaluations").iterdir()) == before


def test_a_run_without_an_evaluation_and_with_vectors(capsys, tmp_path, curves):
    path = tmp_path / "x.html"
    assert run(capsys, "report", curves, "--out", path, "--num-examples", 4)[0] == 0
    text = path.read_text(encoding="utf-8")
    assert "curves has no evaluation of test examples yet." in text
    assert f"aisle evaluate {curves}" in commands(text)
    assert text.count('class="lines"') == 3
    assert "<img" not in text
    (train,) = (c for c in commands(text) if c.endswith(f" --out {curves}"))
    command = parse(shlex.split(train)[1:])
    assert training.complete(command._config()) == training.open_config(curves)


def test_an_evaluation_from_the_prior_and_of_training_examples(capsys, tmp_path, runs):
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder, ignore=shutil.ignore_patterns("evaluations"))
    options = (*EVALUATION, "--start", "prior", "--split", "train")
    assert run(capsys, "evaluate", folder, *options)[0] == 0
    path = tmp_path / "x.html"
    assert run(capsys, "report", folder, "--out", path, "--num-examples", 2)[0] == 0
    text = path.read_text(encoding="utf-8")
    assert "run has no evaluation of test examples yet." in text
    (evaluate,) = (c for c in commands(text) if "--start" in c)
    command = parse(shlex.split(evaluate)[1:])
    assert (command.config.start, command.config.split) == ("prior", "train")


@pytest.mark.parametrize("about", [None, {}, {"note": "mine"}])
def test_an_evaluation_by_a_program_is_no_trouble(capsys, tmp_path, runs, about):
    folder, path = tmp_path / "run", tmp_path / "x.html"
    shutil.copytree(runs[0], folder)
    (file,) = folder.glob("evaluations/*/result.json")
    stored = json.loads(file.read_text())
    stored["settings"]["about"] = about
    file.write_text(json.dumps(stored))
    assert run(capsys, "report", folder, "--out", path, "--num-examples", 2)[0] == 0


def test_an_evaluation_of_earlier_weights_is_told(capsys, tmp_path, runs):
    folder, path = tmp_path / "run", tmp_path / "x.html"
    shutil.copytree(runs[0], folder)
    assert run(capsys, "train", "--resume", folder, "--epochs", 2)[0] == 0
    assert run(capsys, "report", folder, "--out", path, "--num-examples", 2)[0] == 0
    text = path.read_text(encoding="utf-8")
    assert "run: the evaluation is of update 3, the run is at 6; evaluate again." in text


def test_an_evaluation_of_other_data_is_not_taken_for_the_run_s(capsys, tmp_path, runs):
    folder, path, other = tmp_path / "run", tmp_path / "x.html", tmp_path / "other.npy"
    shutil.copytree(runs[0], folder)
    own = result(folder)["log_likelihood"]["mean"]
    np.save(other, np.zeros((40, 8, 8), np.float32))
    assert run(capsys, "evaluate", folder, *EVALUATION, "--data", other)[0] == 0
    assert run(capsys, "report", folder, "--out", path, "--num-examples", 2)[0] == 0
    text = path.read_text(encoding="utf-8")
    assert re.findall(r'class="figure"><data value="([^"]*)"', text) == [repr(own)]
    assert "12 test examples of digits." in text
    assert f"<small>of other data, {other}</small>" in text
    (evaluate,) = (c for c in commands(text, "settings") if "--data " in c)
    assert parse(shlex.split(evaluate)[1:]).config.data == str(other)


def test_own_data_that_were_named_are_own_data(capsys, tmp_path, runs):
    folder, path = tmp_path / "run", tmp_path / "x.html"
    shutil.copytree(runs[0], folder, ignore=shutil.ignore_patterns("evaluations"))
    assert run(capsys, "evaluate", folder, *EVALUATION, "--data", "digits")[0] == 0
    assert run(capsys, "report", folder, "--out", path, "--num-examples", 2)[0] == 0
    assert "other data" not in path.read_text(encoding="utf-8")


def test_data_that_are_gone_leave_a_page_that_says_so(capsys, tmp_path, curves):
    data = curves.parent / "my curves.npy"
    hidden = data.rename(data.with_suffix(".hidden"))
    try:
        result = run(capsys, "report", curves, "--out", tmp_path / "x.html", "--num-examples", 2)
    finally:
        hidden.rename(data)
    assert result[0] == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "No reconstructions and no interpolations: " in text
    assert f"{data}, which {curves} was trained on, is not there" in html.unescape(text)


def test_data_that_have_changed_are_not_shown(capsys, tmp_path, curves):
    data = curves.parent / "my curves.npy"
    before = data.read_bytes()
    np.save(data, np.load(data)[::-1])
    try:
        result = run(capsys, "report", curves, "--out", tmp_path / "x.html", "--num-examples", 2)
    finally:
        data.write_bytes(before)
    assert result[0] == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert f"{data} is not what {curves} was trained on" in html.unescape(text)


def test_no_run_is_a_mistake(capsys, tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    assert_mistake(run(capsys, "report"), "no RUN is given: give the folder of at least one")
    assert_mistake(run(capsys, "report", "nowhere"), "nowhere does not exist: give the folder")
    assert_mistake(run(capsys, "report", runs[0], "."), ". is not a run, as it has no config.json")
    twice = (runs[0], runs[1], f"{runs[0]}/../plain")
    assert_mistake(run(capsys, "report", *twice), "plain is given twice: give each run once")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_checkpoint(capsys, tmp_path, runs):
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder, ignore=shutil.ignore_patterns("checkpoints"))
    result = run(capsys, "report", folder, "--out", tmp_path / "x.html")
    assert_mistake(result, f"{folder} has no checkpoint yet")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_damaged_evaluation(capsys, tmp_path, runs):
    folder = tmp_path / "run"
    shutil.copytree(runs[0], folder)
    (path,) = folder.glob("evaluations/*/result.json")
    path.write_text("{")
    result = run(capsys, "report", folder, "--out", tmp_path / "x.html")
    assert_mistake(result, "is not an evaluation of this version", "evaluate again, or remove it")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("target", ["missing/a", ".", "file/a"])
def test_an_impossible_target(capsys, tmp_path, monkeypatch, runs, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert_mistake(run(capsys, "report", runs[0], "--out", target), target)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unwritable_folder(capsys, tmp_path, monkeypatch, runs):
    # Root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
    path = tmp_path / "a.html"
    words = f"{tmp_path} cannot be written to: give a file in another folder"
    assert_mistake(run(capsys, "report", runs[0], "--out", path), words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--num-examples", "0"], "--num-examples is 0: it must be from 1 to 128"),
        (["--num-examples", "129"], "--num-examples is 129: it must be from 1 to 128"),
        (["--num-examples", "few"], "few"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_a_bad_number(capsys, tmp_path, runs, options, words):
    path = tmp_path / "x.html"
    assert_mistake(run(capsys, "report", runs[0], "--out", path, *options), words)
    assert not path.exists()


@pytest.mark.parametrize("number", [1, 2, 9])
def test_any_number_of_pictures(capsys, tmp_path, runs, number):
    path = tmp_path / "x.html"
    assert run(capsys, "report", runs[0], "--out", path, "--num-examples", number)[0] == 0
    # One example has no partner to go to.
    wanted = 2 if number < 4 else 3
    text = path.read_text(encoding="utf-8")
    gallery = text[text.index('class="gallery"') : text.index('id="chains"')]
    assert gallery.count("<img") == wanted


def test_the_demonstration_ends_with_a_page(capsys, monkeypatch, tmp_path, runs):
    """Its training is that of any table; here it is done already."""
    shutil.copytree(runs[0], tmp_path / "plain")
    mean = Mean(-1.0, 0.1, 12)
    costs = (3, 300, 1.0, mean, mean, None, None, 1.0, 0, "", "")
    row = Row("plain", "digits", "vae", 1, None, None, None, None, *costs)
    monkeypatch.setattr(demo, "cells", lambda *_: [Cell("plain", TrainConfig("digits"))])
    monkeypatch.setattr(cells, "run_cell", lambda *_: Finished(row, np.zeros(12)))
    code, out, _ = run(capsys, "demo", "--out", tmp_path)
    assert code == 0
    assert out.splitlines()[-1] == str(tmp_path / "report.html")
    assert "plain on digits" in (tmp_path / "report.html").read_text(encoding="utf-8")


def browse(page, home):
    """Open a page in Chromium; return its elements, its console and what it asked the network."""
    log = home / "net.json"
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home / 'profile'}"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--virtual-time-budget=5000", "--enable-logging=stderr", f"--log-net-log={log}"),
        "--host-resolver-rules=MAP * ~NOTFOUND",
    )
    command = [BROWSER, *options, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    # The browser's own requests have no origin; those of a page have that of the page.
    own = {"not an origin", None}
    asked = {e["url"] for e in events if "url" in e and e.get("initiator") not in own}
    return done.stdout, console, {url for url in asked if not url.startswith(("file:", "data:"))}


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: install the package chromium")
def test_the_page_opens_in_a_browser_without_network(page, tmp_path):
    content, console, asked = browse(page, tmp_path)
    assert (console, asked) == ([], set())
    assert content.rstrip().endswith("</html>")
    # What the parser of a browser makes of it is what was written.
    written = page.read_text(encoding="utf-8")
    for tag in ("section", "table", "svg", "img", "figure", "h1"):
        assert len(re.findall(f"<{tag}[ >]", content)) == len(re.findall(f"<{tag}[ >]", written))
    # And this is what a page would look like that is not so quiet.
    loud = tmp_path / "loud.html"
    loud.write_text('<img src="http://example.invalid/x.png"><script>console.error(1)</script>')
    _, console, asked = browse(loud, tmp_path)
    assert len(console) == 1
    assert asked == {"http://example.invalid/x.png"}


# For each width: lines of the headline's number, whether its unit is on the same line, share of the
# width that is left to a second column, pixels that stand over, where the column of log p(x) ends,
# and whether the caption hides the shadow of the rows.
MEASURE = """
<script>
function measure(frame) {
  const page = frame.contentDocument, find = (query) => page.querySelector(query);
  const color = (element) => frame.contentWindow.getComputedStyle(element).backgroundColor;
  const result = find(".result"), left = result.firstElementChild;
  return {
    width: frame.clientWidth,
    lines: find(".figure data").getClientRects().length,
    units: find(".figure").clientHeight < 1.5 * find(".figure data").offsetHeight,
    second: 1 - left.offsetWidth / result.offsetWidth,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    log_p: find("#comparison tbody td").getBoundingClientRect().right,
    hides: color(find("#comparison caption")) === color(page.body),
  };
}
addEventListener("load", () => {
  const all = [...document.querySelectorAll("iframe")].map(measure);
  document.body.innerHTML = `<pre>${JSON.stringify(all)}</pre>`;
});
</script>
"""


def layout(page, home, widths):
    """Measure a page in frames of several widths."""
    content = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    frames = [
        f'<iframe srcdoc="{html.escape(content)}" style="width: {width}px; border: 0"></iframe>'
        for width in widths
    ]
    harness = home / "harness.html"
    harness.write_text(f"<!doctype html><meta charset=utf-8><body>{''.join(frames)}{MEASURE}")
    found, _, _ = browse(harness, home)
    return json.loads(re.findall("<pre>(.*?)</pre>", found)[0])


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: install the package chromium")
def test_the_headline_and_the_main_figure_fit_any_width(page, runs, tmp_path):
    single = tmp_path / "single.html"
    assert call("report", runs[0], "--out", single, "--num-examples", 2) == 0
    for path in (page, single):
        for found in layout(path, tmp_path, (320, 390, 700, 1000, 1010, 1020, 1100, 1280)):
            assert found["lines"] == 1 and found["units"], found
            assert found["overflow"] <= 0 and found["hides"], found
            assert found["log_p"] <= found["width"], found
            if path == single:
                assert found["second"] == 0, found
