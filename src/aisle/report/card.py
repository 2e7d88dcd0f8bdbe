"""A trained model as a folder for others: weights, a card that describes them, and a picture."""

import os
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from aisle.data.sources import SOURCES
from aisle.errors import InputError
from aisle.files import disk_errors
from aisle.provenance import provenance
from aisle.report.pictures import sample_panel, save_panels
from aisle.report.reading import Evaluation, Run, read_run
from aisle.runs import commands, opening
from aisle.runs.opening import EXPORTED

_NUM_SAMPLES = 64
_PICTURE = "samples.png"

# Without a picture, there is a context that samples need.
_GIVEN = "x = aisle.sample(model, 10, context=context)  # of ten examples, an aisle.Context"

_CARD = """\
---
library_name: aisle
license: other
tags: [latent-variable model, density estimation, annealed importance sampling]
---

# {name}

A latent-variable model p(x, z) of {data_name}, trained and measured with aisle: {about}.
{picture}
## Load

```python
import aisle

model, proposal = aisle.load({load})
{use}
```

`{file}` has the weights and how to build the networks, and no code. Without aisle,
`safetensors.numpy.load_file` returns the arrays by name.

## Log-likelihood

{measured}

## Data

{data}

## Training

{training}

## Versions

{versions}

## Licence

{licence}
"""


def export_with_card(opened: opening.Run, folder: Path) -> None:
    """Write weights, card and picture into a new folder, whole or not at all."""
    check_new(folder)
    # Beside it, so that the last step is a rename.
    part = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        with disk_errors(folder):
            part.mkdir(parents=True)
        opening.export_run(opened, part / EXPORTED)
        has_picture = _draw(opened, part / _PICTURE)
        with disk_errors(folder):
            text = card(opened, folder.name, has_picture)
            (part / "README.md").write_text(text, encoding="utf-8")
            part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_new(folder: Path) -> None:
    """Refuse a folder that holds something already."""
    with disk_errors(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} is there already: name a new folder")


def card(opened: opening.Run, name: str, has_picture: bool) -> str:
    """Return the text of the card of a run."""
    run = read_run(opened.path)
    data = opened.stored["data"]
    is_own = opened.config is None or opened.config.model.is_own
    return _CARD.format(
        name=name,
        data_name=run.data_name,
        about=_about(opened.model, is_own),
        picture=f"\n![Samples]({_PICTURE})\n" if has_picture else "",
        use="x = aisle.sample(model, 10)" if has_picture else _GIVEN,
        load=f'"{name}"{", model, proposal" if is_own else ""}',
        file=EXPORTED,
        measured=_measured(opened, run),
        data=_data(data),
        training=_training(opened, run),
        versions=_versions(opened),
        licence=_licence(data),
    )


def _about(model: Any, is_own: bool) -> str:
    """Return what the model is made of."""
    number = sum(a.size for a in jax.tree.leaves(model) if eqx.is_inexact_array(a))
    if is_own:
        return f"{type(model).__name__}, {number:,} weights"
    latents = jax.eval_shape(model.sample_prior, jax.random.key(0))
    size = sum(a.size for a in jax.tree.leaves(latents))
    family = type(model.likelihood).__name__
    return f"{size:,} latents, the likelihood {family}, {number:,} weights"


def _draw(opened: opening.Run, path: Path) -> bool:
    """Draw samples, where the model can make some without being told of a context."""
    try:
        panel = sample_panel(jax.random.key(0), opened.model, _NUM_SAMPLES)
        shape = opened.shape or panel.examples.shape[1:]
        save_panels(path, [panel], shape)
    except InputError:
        return False
    return True


def _measured(opened: opening.Run, run: Run) -> str:
    """Return the table of evaluations of these weights, on the run's own data."""
    found = [
        each
        for each in run.evaluations
        if each.update in (opened.update, None) and each.other_data is None and each.is_complete
    ]
    if not found:
        return "Not measured. `aisle evaluate`, before the export, puts it here."
    rows = [
        "| examples | log p(x) in nats | gap | chains | temperatures |",
        "|---|---|---|---|---|",
    ]
    rows += [f"| {' | '.join(_row(each))} |" for each in found]
    rows += [
        "",
        "A stochastic lower bound by annealed importance sampling, with its standard error over "
        "examples. The gap of bidirectional Monte Carlo, on simulated examples, says how far off "
        "it can be.",
    ]
    return "\n".join(rows)


def _row(each: Evaluation) -> list[str]:
    log_p, gap = each.means["log_p"], each.means.get("gap")
    certified = "not certified" if gap is None else f"{gap} on {gap.num_examples:,} examples"
    examples = f"{log_p.num_examples:,} of {each.split or 'the data'}"
    return [examples, str(log_p), certified, str(each.chains[0]), str(each.chains[1])]


def _data(data: dict[str, Any]) -> str:
    """Return where the data are from, how many they are, and their digests."""
    # The name of a file alone: folders are of the machine that trained.
    source = Path(str(data.get("source", data.get("name", "not noted")))).name
    lines = [f"- source: {source}"]
    if data.get("shape"):
        lines.append(f"- shape of an example: {tuple(data['shape'])}")
    digests = data.get("digests") or {"all": data.get("digest")}
    for part, digest in digests.items():
        number = data.get(f"num_{part}")
        lines.append(f"- {part}: {f'{number:,} examples, ' if number else ''}digest `{digest}`")
    return "\n".join(lines)


def _training(opened: opening.Run, run: Run) -> str:
    lines = []
    if opened.config is not None:
        lines.append(f"- `{commands.train_anywhere(opened.config)}`")
    else:
        methods = [phase["method"] for phase in opened.stored["fit"]["phases"]]
        lines.append(f"- `aisle.fit`, {', then '.join(f'`{method}`' for method in methods)}")
    lines.append(f"- {opened.update:,} updates")
    if len(run.history["update"]):
        seconds, gradients = (run.history[name][-1] for name in ("seconds", "decoder_gradients"))
        lines.append(f"- {gradients:,.0f} gradients of the decoder in {seconds:,.0f} seconds")
    return "\n".join(lines)


def _versions(opened: opening.Run) -> str:
    about = opened.stored.get("provenance") or {}
    trained = {"python": about.get("python"), **(about.get("packages") or {})}
    own = provenance()
    exported = f"aisle {own['packages']['aisle']}"  # pyright: ignore
    listed = ", ".join(f"{name} {version}" for name, version in trained.items() if version)
    return f"Trained with {listed or 'versions that were not noted'}; exported with {exported}."


def _licence(data: dict[str, Any]) -> str:
    source = SOURCES.get(str(data.get("name")))
    of_data = f"The data are under {source.licence}. " if source else ""
    return f"{of_data}Whoever publishes these weights states their licence here."
