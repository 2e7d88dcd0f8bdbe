"""What certificates cost and whether they are right: `python -m benchmarks.certificates --help`.

bounds: the gap by the upper bound of reverse chains alone, and by that which aisle reports, at the
same number of gradients. planning: gradients to a certified tolerance, planned and by doubling T.
tried: other starts and schedules, and how different examples are. others: the error of log p(x) by
the ways of others and by aisle, for the same gradients. exact: sums of p(x) over all patterns of a
few bits. pages: tables and pictures of all that is there.

Each writes a line of JSON for each case into --out as soon as it is known, and goes on after those
that are there.
"""

import argparse
import json
from pathlib import Path

from aisle.provenance import provenance
from benchmarks.certificates import bounds, exact, others, pages, planning, tried
from benchmarks.certificates.shared import MODELS

STUDIES = {
    "bounds": bounds.cases,
    "planning": planning.cases,
    "tried": tried.cases,
    "others": others.cases,
    "exact": exact.cases,
}


def main() -> None:
    """Run the cases of a study that are not in its file yet, or draw all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", choices=[*STUDIES, "pages"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=planning.WAYS, default=["planned"])
    parser.add_argument("--what", nargs="+", choices=tried.WHAT, default=list(tried.WHAT))
    parser.add_argument("--num-examples", type=int, default=100)
    parser.add_argument("--temperatures", type=int, nargs="+", default=[100])
    parser.add_argument("--gradients", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--data", type=Path, help="folder of the data; by default AISLE_DATA's")
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("results/certificates"))
    options = parser.parse_args()
    if options.study == "pages":
        return pages.write(options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{options.study}.jsonl"
    done = [line["case"] for line in pages.read(file)]
    for case, run in STUDIES[options.study](options):
        if case not in done:
            line = {"case": case, "found": run(), "provenance": provenance()}
            with file.open("a") as opened:
                opened.write(json.dumps(line) + "\n")
            print(json.dumps({**case, **line["found"]}), flush=True)
    return None


if __name__ == "__main__":
    main()
