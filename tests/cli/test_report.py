"""`aisle report`, from the arguments to a page in a browser."""

import html
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from aisle.cli.main import parse
from aisle.runs.config import to_json
from aisle.runs.opening import open_run
from commands import assert_mistake, call, contents, run
from pages import ABOUT, elements, log_p, table, write_evaluation

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def evaluated(digits):
    """A run on the digits at update 3, with an evaluation."""
    write_evaluation(digits / "evaluations" / "one", log_p(), about=ABOUT | {"update": 3})
    return digits


@pytest.fixture(scope="module")
def page(evaluated):
    path = evaluated.parent / "page.html"
    assert call("report", evaluated, "--out", path, "--num-examples", 8) == 0
    return path


def commands(path):
    """Return the commands of a page, as one reads them."""
    section = elements(path.read_text(encoding="utf-8")).one("section", id="settings")
    return [pre.text for pre in section.all("pre")]


def test_a_report_is_one_file_and_says_where_it_is(capsys, tmp_path, evaluated):
    before = contents(evaluated)
    path = tmp_path / "x.html"
    code, out, err = run(capsys, "report", evaluated, "--out", path, "--num-examples", 8)
    assert (code, out.strip(), err) == (0, str(path), "")
    assert list(tmp_path.iterdir()) == [path]
    assert contents(evaluated) == before


@pytest.mark.slow
def test_the_page_shows_the_evaluation_and_the_samples_of_the_run(page):
    root = elements(page.read_text(encoding="utf-8"))
    assert root.one("h1").words == "run on digits"
    (row,) = table(root)
    assert row["log p(x)"] == "\N{MINUS SIGN}20.00 ± 0.70"
    assert row["examples"] == "20 test"
    assert len(root.one("section", id="samples").all("img")) == 2
    key = root.one("section", id="latents").one("ul", class_="key").all("li")
    assert [item.words[-1] for item in key] == list("0123456789")


def test_the_commands_reproduce_the_run_and_its_evaluation(page, evaluated):
    train, evaluate = (parse(shlex.split(command)[1:]) for command in commands(page))
    assert to_json(train._config()) == to_json(open_run(evaluated).config)
    assert train.out == evaluated
    assert (evaluate.run_path, evaluate.config.sampler.num_chains) == (evaluated, 2)
    assert (evaluate.config.split, evaluate.config.num_examples) == ("test", 20)


@pytest.mark.parametrize("about", [None, {}, {"note": "mine"}], ids=str)
def test_an_evaluation_by_a_program_has_no_command(tmp_path, evaluated, about):
    folder, path = tmp_path / "run", tmp_path / "x.html"
    shutil.copytree(evaluated, folder, ignore=shutil.ignore_patterns("one"))
    write_evaluation(folder / "evaluations" / "mine", log_p(), about=about)
    assert call("report", folder, "--out", path, "--num-examples", 2) == 0
    assert len(commands(path)) == 1


@pytest.mark.slow
def test_data_that_have_changed_leave_a_page_that_says_so(tmp_path, make_run):
    data, path = tmp_path / "mine.npy", tmp_path / "x.html"
    np.save(data, np.random.default_rng(0).uniform(size=(40, 5)).astype(np.float32))
    folder = make_run(str(data))
    assert call("report", folder, "--out", path) == 0
    assert "feature 5" in path.read_text(encoding="utf-8")
    np.save(data, np.load(data)[::-1])
    assert call("report", folder, "--out", path) == 0
    words = elements(path.read_text(encoding="utf-8")).one("section", id="samples").words
    assert f"The data are not available: {data} is not what {folder} was trained on" in words


def test_a_run_of_one_s_own_model_is_shown(tmp_path):
    folder, path = tmp_path / "own", tmp_path / "x.html"
    folder.mkdir()
    settings = {"fit": {"method": "ais", "num_epochs": 3}, "data": {"digest": "d"}}
    (folder / "config.json").write_text(json.dumps(settings))
    assert call("report", folder, "--out", path) == 0
    root = elements(path.read_text(encoding="utf-8"))
    assert {"setting": "num_epochs", "value": "3"} in table(root, "settings")


def test_jinja_is_asked_for_if_it_is_missing(capsys, tmp_path, monkeypatch, evaluated):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    result = run(capsys, "report", evaluated, "--out", tmp_path / "x.html")
    assert_mistake(result, "Jinja2", "pip install 'aisle[report]'")
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_starts_without_jinja():
    code = "import sys, aisle.cli; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_run_is_a_mistake(capsys, tmp_path, monkeypatch, evaluated):
    monkeypatch.chdir(tmp_path)
    assert_mistake(run(capsys, "report"), "no RUN is given: give the folder of at least one")
    assert_mistake(run(capsys, "report", "nowhere"), "nowhere does not exist: give the folder")
    assert_mistake(run(capsys, "report", "."), ". is not a run, as it has no config.json")
    twice = (evaluated, f"{evaluated}/../run")
    assert_mistake(run(capsys, "report", *twice), "run is given twice: give each run once")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_checkpoint(capsys, tmp_path, evaluated):
    folder = tmp_path / "run"
    shutil.copytree(evaluated, folder, ignore=shutil.ignore_patterns("checkpoints"))
    result = run(capsys, "report", folder, "--out", tmp_path / "x.html")
    assert_mistake(result, f"{folder} has no checkpoint yet")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_damaged_evaluation(capsys, tmp_path, evaluated):
    folder = tmp_path / "run"
    shutil.copytree(evaluated, folder)
    (folder / "evaluations" / "one" / "result.json").write_text("{")
    result = run(capsys, "report", folder, "--out", tmp_path / "x.html")
    assert_mistake(result, "is not an evaluation of this version", "evaluate again, or remove it")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("target", ["missing/a.html", ".", "file/a.html", "a.txt"])
def test_an_impossible_target(capsys, tmp_path, monkeypatch, evaluated, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert_mistake(run(capsys, "report", evaluated, "--out", target), target)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--num-examples", "0"], "--num-examples is 0: it must be from 1 to 128"),
        (["--num-examples", "129"], "--num-examples is 129: it must be from 1 to 128"),
        (["--seed", "-1"], "--seed is -1"),
        (["--label", "sex"], "--label is 'sex', but scikit-learn is no table: leave it out"),
    ],
)
def test_a_bad_option(capsys, tmp_path, evaluated, options, words):
    path = tmp_path / "x.html"
    assert_mistake(run(capsys, "report", evaluated, "--out", path, *options), words)
    assert not path.exists()


@pytest.mark.slow
def test_a_run_that_was_trained_and_evaluated(tmp_path):
    """The page reads what the other commands write."""
    folder, path = tmp_path / "run", tmp_path / "x.html"
    options = ("--num-hidden", 8, "--num-latents", 2, "--epochs", 1, "--batch-size", 500)
    chains = ("--method", "ais", "-K", 2, "-T", 3)
    assert call("train", "digits", *options, *chains, "--out", folder) == 0
    size = ("-C", 2, "-T", 4, "--num-examples", 12, "--bdmc-examples", 6)
    assert call("evaluate", folder, *size, "--importance-samples", 7) == 0
    assert call("train", "--resume", folder, "--epochs", 2) == 0
    assert call("report", folder, "--out", path, "--num-examples", 2) == 0
    (file,) = folder.glob("evaluations/*/result.json")
    found = json.loads(file.read_text())
    root = elements(path.read_text(encoding="utf-8"))
    (row,) = table(root)
    for name, one in (
        ("log p(x)", found["log_likelihood"]),
        ("importance-weighted bound", found["importance"]["bound"]),
        ("ELBO", found["importance"]["elbo"]),
    ):
        wanted = f"{one['mean']:.2f} ± {one['standard_error']:.2f}"
        assert row[name] == wanted.replace("-", "\N{MINUS SIGN}")
    assert "of update 2; the run is at 4" in row["examples"]
    assert len(root.one("section", id="training").all("svg", class_="plot")) == 3


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


@pytest.mark.slow
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


# For each width: lines of the headline's number, pixels that overflow, and where log p(x) ends.
MEASURE = """
<script>
function measure(frame) {
  const page = frame.contentDocument, find = (query) => page.querySelector(query);
  return {
    width: frame.clientWidth,
    lines: find(".headline b").getClientRects().length,
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    log_p: find("#evaluations tbody td").getBoundingClientRect().right,
  };
}
addEventListener("load", () => {
  const all = [...document.querySelectorAll("iframe")].map(measure);
  document.body.innerHTML = `<pre>${JSON.stringify(all)}</pre>`;
});
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: install the package chromium")
def test_the_headline_and_the_main_number_fit_any_width(page, tmp_path):
    content = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    source = f'srcdoc="{html.escape(content)}"'
    widths = (320, 390, 700, 1000, 1280)
    frames = "".join(f'<iframe {source} style="width: {w}px; border: 0"></iframe>' for w in widths)
    harness = tmp_path / "harness.html"
    harness.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}{MEASURE}")
    measured = json.loads(re.findall("<pre>(.*?)</pre>", browse(harness, tmp_path)[0])[-1])
    assert len(measured) == len(widths)
    for found in measured:
        assert found["lines"] == 1 and found["overflow"] <= 0, found
        assert found["log_p"] <= found["width"], found
