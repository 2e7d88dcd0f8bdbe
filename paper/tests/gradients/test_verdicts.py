"""What the results of the estimators say."""

from known_results import table
from paper.gradients.estimators import ESTIMATORS, KERNELS
from paper.gradients.verdicts import best_hybrid, verdict


def test_the_verdict_says_who_is_less_biased():
    results = table(
        at={
            ("paper", 5, "ais"): (0.02, 2.5),
            ("paper", 11, "ais"): (0.039, 2.5),
            ("tuned", 5, "ais"): (0.09, 0.5),
            ("tuned", 11, "ais"): (0.02, 0.4),
        }
    )
    lines = verdict(results)
    assert lines[0] == (
        "paper kernel, 5 transitions of 5 steps: the less biased is ais (ais 0.141, mh-hmc 0.200, "
        "z = 7.1). Without its weights ais has 0.200; with them 2.0 of 5 chains count, and its "
        "noise is 1.58, mh-hmc's 0.71. Its error is the smaller one in an average over 100 "
        "updates or more."
    )
    assert ": the less biased is neither (ais 0.197, mh-hmc 0.200, z = 0.4)" in lines[1]
    assert ": the less biased is mh-hmc (ais 0.300, mh-hmc 0.200, z = -17.7)" in lines[2]
    assert lines[2].startswith("tuned kernel, 10 transitions of 2 steps")
    assert "the less biased is ais" in lines[3]
    assert not any("updates or more" in line for line in lines[1:])


def test_the_verdict_says_what_neither_beats():
    """At any T: the better of both has a square of 0.04, and its rivals' errors are 0.002."""
    high = {
        (kernel, 5, name): (0.2, 0.5)
        for kernel in KERNELS
        for name in ESTIMATORS
        if name not in ("ais", "mh-hmc")
    }
    some = {
        # Worse by 1.8 standard errors of the difference at one T, and by 3.5 at the other.
        ("paper", 5, "1/2 ais, then hmc"): (0.045, 0.5),
        ("paper", 5, "3/4 ais, then hmc"): (0.045, 0.5),
        ("paper", 11, "3/4 ais, then hmc"): (0.05, 0.5),
        # Not beaten in bias only, and in both.
        ("tuned", 5, "1/4 ais, then hmc"): (0.01, 0.6),
        ("tuned", 5, "1/2 ais, then hmc"): (0.01, 0.4),
        ("paper", 5, "mh-hmc"): (0.06, 0.5),
    }
    lines = verdict(table(at=high | some))[4:8]
    assert [line.split(": ")[1] for line in lines] == [
        "ais; 1/2 ais, then hmc.",
        "ais; 1/2 ais, then hmc.",
        "mh-hmc; ais; 1/4 ais, then hmc; 1/2 ais, then hmc.",
        "mh-hmc; ais; 1/2 ais, then hmc.",
    ]
    everything = verdict(table())
    assert everything[4].endswith("at any T: all.")
    nothing = {("tuned", 5, name): (9.0, 0.5) for name in ESTIMATORS}
    assert verdict(table(at=nothing))[6].endswith("at any T: none.")


def test_the_verdict_says_where_a_part_of_the_transitions_is_none():
    """A quarter of 5, rounded, is the one transition that reaches the posterior."""
    assert verdict(table())[8:] == [
        "With 5 transitions these anneal nothing, and all moves are those of mh-hmc: 1/4 ais, then "
        "hmc; 1/4 ais, then hmc, equal weights."
    ]
    assert len(verdict(table(temperatures=(11,)))) == 6


def test_a_bias_that_is_not_a_number_is_not_good():
    results = table(at={("tuned", 5, name): (float("nan"), 0.5) for name in ESTIMATORS})
    assert verdict(results)[6].endswith("at any T: none.")


def test_the_best_hybrid_is_the_least_biased_with_the_papers_kernel():
    at = {
        ("paper", 5, "mh-hmc"): (0.0, 0.5),
        ("tuned", 5, "1/4 ais, then hmc"): (0.0, 0.5),
        ("paper", 5, "1/2 ais, then hmc"): (0.01, 0.5),
        ("paper", 11, "3/4 ais, then hmc, equal weights"): (0.005, 0.5),
    }
    assert best_hybrid(table(at=at)) == "3/4 ais, then hmc, equal weights"
