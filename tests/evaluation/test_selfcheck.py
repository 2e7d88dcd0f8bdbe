import jax
import pytest

from aisle.evaluation.selfcheck import GROUPS, Check


@pytest.mark.parametrize(
    ("rule", "z", "is_passed"),
    [
        ("equals", 3.9, True),
        ("equals", -4.1, False),
        ("equals", float("nan"), False),
        ("at most", -100.0, True),
        ("at most", 4.1, False),
        ("at least", 100.0, True),
        ("at least", -4.1, False),
        ("shrinks", 3.1, True),
        ("shrinks", 2.9, False),
        ("shrinks", -100.0, False),
    ],
)
def test_verdicts(rule, z, is_passed):
    assert Check("name", rule, 0.0, 1.0, 1.0, z).is_passed is is_passed


def test_exactly_means_exactly():
    assert Check("name", "exactly", 0.0, 0.0, 0.0, 0.0).is_passed
    assert not Check("name", "exactly", 0.0, 1e-7, 0.0, 0.0).is_passed


@pytest.mark.slow
@pytest.mark.parametrize("title", GROUPS)
def test_every_check_passes_for_another_seed(title):
    failed = [c for c in GROUPS[title](jax.random.key(2024)) if not c.is_passed]
    assert not failed
