"""A network of PyTorch as a list of steps, run by JAX."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from aisle.errors import InputError
from aisle.models.doors.operations import OPERATIONS


class Value(NamedTuple):
    """What an input, or a step, has given, by its number."""

    number: int


class Step(NamedTuple):
    """One operation; in its arguments, a `Value` stands for what came out before."""

    operation: str
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()


# Steps that leave numbers as they are.
_SHAPES = ("alias", "clone", "view", "squeeze", "unsqueeze")


@dataclass(frozen=True)
class Program:
    """Steps from arrays by their names, and one input, to outputs.

    Attributes:
        names: of the arrays that are the first values.
        steps: the values after those and the input, in order.
        outputs: which values come out.
    """

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Value, ...]

    def run(self, arrays: Mapping[str, Array], x: Array) -> list[Array]:
        """Return the outputs."""
        values: list[Any] = [*(arrays[name] for name in self.names), x]

        def found(argument: Any) -> Any:
            if isinstance(argument, Value):
                return values[argument.number]
            return tuple(map(found, argument)) if isinstance(argument, tuple) else argument

        for step in self.steps:
            options = {name: found(value) for name, value in step.options}
            try:
                value = OPERATIONS[step.operation](*map(found, step.arguments), **options)
            except (NotImplementedError, TypeError) as error:
                raise InputError(
                    f"{step.operation} is called with options that cannot be translated: use it "
                    "without them, or another layer"
                ) from error
            values.append(value)
        return [values[output.number] for output in self.outputs]

    def without_sigmoid(self) -> "Program | None":
        """Return the program without the sigmoid that it ends in; None where there is none."""
        if len(self.outputs) != 1:
            return None
        at, first = self.outputs[0].number, len(self.names) + 1
        while at >= first and self.steps[at - first].operation in _SHAPES:
            at = self.steps[at - first].arguments[0].number
        if at < first or self.steps[at - first].operation != "sigmoid" or self._uses(at) > 1:
            return None
        steps = list(self.steps)
        steps[at - first] = steps[at - first]._replace(operation="alias")
        return replace(self, steps=tuple(steps))

    def _uses(self, number: int) -> int:
        leaves = jax.tree.leaves(
            [step.arguments for step in self.steps], is_leaf=lambda a: isinstance(a, Value)
        )
        return leaves.count(Value(number)) + self.outputs.count(Value(number))


class Translated(eqx.Module):
    """A network of PyTorch for one example, from any shape to a vector of all its outputs.

    Attributes:
        weights: what is trained, by PyTorch's names.
        constants: what is not, such as the running means of a batch norm.
        program: the steps.
        shape: of the input, without a batch axis.
        names: those of PyTorch's state dict, each with that of its array; tied weights are one.
    """

    weights: dict[str, Array]
    constants: dict[str, Array]
    program: Program = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    names: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, " outputs"]:
        """Apply the network to one example."""
        arrays = self.weights | jax.lax.stop_gradient(self.constants)
        x = x.astype(jnp.result_type(float)).reshape(1, *self.shape)
        return jnp.concatenate([output.ravel() for output in self.program.run(arrays, x)])
