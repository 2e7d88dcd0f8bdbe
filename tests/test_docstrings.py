"""Every public name that users call has an example, and the examples are right."""

import doctest
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aisle

pytestmark = pytest.mark.usefixtures("quick_compilation")

FIRST_EDITION = Path(__file__).parent / "fixtures" / "first_edition"
GLOBALS = {
    "aisle": aisle,
    "jax": jax,
    "jnp": jnp,
    "np": np,
    "optax": optax,
    "FIRST_RUN": FIRST_EDITION / "averaged",
}
# What users are given and do not make, or make by other words.
GIVEN = {"AnnealInfo", "Annealed", "Fitted", "LogLikelihood", "Look", "Losses", "Metrics"}
GIVEN |= {"Comparison", "MoveInfo", "Run"}
EXTRAS = {"from_torch": ["torch"], "to_torch": ["torch"], "from_flax": ["flax"]}


def public():
    """Yield each public function and class by the name that users type."""
    for name in aisle.__all__:
        found = getattr(aisle, name)
        if not inspect.ismodule(found):
            yield name, found
    for module in (aisle.schedules, aisle.rates):
        for name, found in vars(module).items():
            is_own = getattr(found, "__module__", None) == module.__name__
            if is_own and callable(found) and not name.startswith("_"):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", found
    yield "data.load", aisle.data.load


def is_made_by_users(name, found):
    is_protocol = getattr(found, "_is_protocol", False)
    is_error = inspect.isclass(found) and issubclass(found, Exception)
    return not (is_protocol or is_error or name in GIVEN)


def examples(name, found):
    """Return the examples of a name; for a class, those of its public methods too."""
    parts = [found]
    if inspect.isclass(found):
        own = (value for key, value in vars(found).items() if not key.startswith("_"))
        parts += [getattr(value, "__func__", value) for value in own]
    finder = doctest.DocTestFinder(recurse=False)
    documented = [part for part in parts if isinstance(getattr(part, "__doc__", None), str)]
    tests = [test for part in documented for test in finder.find(part, name, globs=dict(GLOBALS))]
    return [test for test in tests if test.examples]


PUBLIC = dict(public())


# They train, anneal or have many parts to compile.
LONG = {"LatentDensity", "compare", "fit", "impute", "log_likelihood", "sample_posterior"}
LONG |= {"Context", "anneal", "convolutional_model", "two_layer"}
LONG |= {"LinearGaussian", "anneal_reverse", "encode", "load", "mlp_model"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in LONG))
        for name, found in PUBLIC.items()
        if is_made_by_users(name, found)
    ],
)
def test_there_is_an_example_and_it_is_right(name):
    for extra in EXTRAS.get(name, ()):
        pytest.importorskip(extra, reason=f"{extra} is not installed: make test-doors has it")
    tests = examples(name, PUBLIC[name])
    assert tests, f"aisle.{name} has no example in its docstring"
    output = []
    for test in tests:
        doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert not output, "".join(output)


def test_a_missing_and_a_wrong_example_are_seen():
    def undocumented():
        """Do nothing."""

    def wrong():
        """Do nothing.

        Example:
            >>> np.add(1, 1) == 3
            True
        """

    assert examples("undocumented", undocumented) == []
    (test,) = examples("wrong", wrong)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None).failed == 1
