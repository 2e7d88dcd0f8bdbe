"""Decoders and encoders of PyTorch: `torch.export` takes them apart, and JAX runs the steps."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aisle.errors import InputError, check_count, first_line
from aisle.models.doors.assembly import (
    NUM_COMPARED,
    assembled,
    check_equal,
    check_logits,
    compared,
    likelihood_of,
    needed,
    shape_of,
)
from aisle.models.doors.operations import OPERATIONS
from aisle.models.doors.programs import Program, Step, Translated, Value
from aisle.models.latent import LatentModel
from aisle.models.likelihoods import Bernoulli, Likelihood
from aisle.types import Proposal

# PyTorch would take these apart too, into steps whose gradients overflow.
_WHOLE = ("softplus", "silu", "mish", "log_sigmoid_forward")
# Options of operations that say where an array is, and steps that only check something.
_PLACES = ("device", "layout", "memory_format", "pin_memory", "non_blocking")
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar")


def from_torch(
    decoder: Any,
    likelihood: str | Likelihood = "bernoulli",
    encoder: Any = None,
    num_latents: int | None = None,
) -> tuple[LatentModel, Proposal]:
    """Return the model of a PyTorch decoder, and the proposal of an encoder, in JAX.

    The prior is N(0, I). Outputs and gradients are compared with PyTorch's before anything is
    returned; an operation that cannot be translated is named. Modules must be in evaluation mode
    where that matters. Arrays that PyTorch trains are trained by `aisle.fit`.

    Example:
        >>> import torch
        >>> decoder = torch.nn.Sequential(
        ...     torch.nn.Linear(2, 16), torch.nn.ELU(), torch.nn.Linear(16, 6))
        >>> model, proposal = aisle.from_torch(decoder)
        >>> sampler = aisle.Sampler(num_chains=2, num_temperatures=10)
        >>> x = aisle.sample(model, 5)
        >>> aisle.log_likelihood(model, proposal, x, sampler=sampler).log_p.shape
        (5,)

    Args:
        decoder: a `torch.nn.Module` from z, (examples, latents), to what the likelihood takes: one
            tensor, or several whose numbers follow one another. Of a Bernoulli likelihood, a
            sigmoid at the end is left out.
        likelihood: a name, such as "bernoulli" or "gaussian", or an object, such as
            `aisle.Gaussian(784, scale="of z")`.
        encoder: a module from x, in the shape of the decoder's output or flat, to the means and
            the logarithms of the variances, in one tensor or in two; None starts chains at the
            prior.
        num_latents: dimensions of z; by default the inputs of the first linear layer.
    """
    torch = needed("torch", "from_torch", "torch")
    num_latents = _num_latents(torch, decoder) if num_latents is None else num_latents
    check_count("num_latents", num_latents)
    network, shapes, outputs = _translated(torch, "decoder", decoder, (num_latents,))
    chosen = likelihood_of(likelihood, shapes)
    if isinstance(chosen, Bernoulli) and (shorter := network.program.without_sigmoid()):
        network = dataclasses.replace(network, program=shorter)
    else:
        check_logits(chosen, outputs)
    shape = shape_of(chosen, shapes)
    back = None
    if encoder is not None:
        taken = _taken(torch, encoder, [shape, (chosen.num_features,)])
        back, _, _ = _translated(torch, "encoder", encoder, taken)
    return assembled(network, chosen, shape, num_latents, back)


def to_torch(part: Any) -> dict[str, Any]:
    """Return the state dict of a decoder, or an encoder, that `aisle.from_torch` took.

    Example:
        >>> import torch
        >>> decoder = torch.nn.Linear(2, 6)
        >>> model, _ = aisle.from_torch(decoder)
        >>> decoder.load_state_dict(aisle.to_torch(model))
        <All keys matched successfully>

    Args:
        part: a model, or a proposal, perhaps after `aisle.fit`.
    """
    torch = needed("torch", "to_torch", "torch")
    network = getattr(part, "decoder", getattr(part, "network", None))
    if not isinstance(network, Translated):
        raise InputError(
            f"is a {type(part).__name__}: give a model or a proposal that aisle.from_torch made",
            argument="part",
        )
    arrays = network.weights | network.constants
    return {name: torch.tensor(np.asarray(arrays[own])) for name, own in network.names}


def _num_latents(torch: Any, decoder: Any) -> int:
    _check_module(torch, "decoder", decoder)
    for part in decoder.modules():
        if isinstance(part, torch.nn.Linear):
            return part.in_features
    raise InputError(
        "is None, and the decoder has no linear layer whose inputs would tell: give it",
        argument="num_latents",
    )


def _check_module(torch: Any, name: str, module: Any) -> None:
    """Refuse what is no module, and layers whose output is not a function of one example."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"is a {type(module).__name__}: give a torch.nn.Module", argument=name)
    dropout, batch_norm = torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm
    lazy = torch.nn.modules.lazy.LazyModuleMixin
    for path, part in module.named_modules():
        if isinstance(part, lazy) and part.has_uninitialized_params():
            raise InputError(
                f"the layer {path or 'itself'} of the {name}, a {type(part).__name__}, has no "
                f"weights yet: call the {name} on a batch first"
            )
        is_mixing = isinstance(part, batch_norm) or (isinstance(part, dropout) and part.p)
        if part.training and is_mixing:
            raise InputError(
                f"the layer {path or 'itself'} of the {name}, a {type(part).__name__}, is in "
                f"training mode: call {name}.eval() first"
            )


def _translated(
    torch: Any, name: str, module: Any, shape: Sequence[int]
) -> tuple[Translated, list[tuple[int, ...]], np.ndarray]:
    """Return a module in JAX, the shapes of its outputs, and outputs for some inputs."""
    _check_module(torch, name, module)
    inputs = np.random.default_rng(0).normal(size=(NUM_COMPARED, *shape))
    module, x = _in_precision_of_jax(torch, module, inputs)
    with torch.no_grad():
        try:
            shapes = [tuple(output.shape[1:]) for output in _tensors(torch, module(x))]
            together = _flat(torch, module(x)).numpy()
            alone = torch.cat([_flat(torch, module(row[None])) for row in x]).numpy()
        except Exception as error:  # whatever a module of somebody else may raise
            raise InputError(
                f"the {name} does not take a batch of the shape {tuple(x.shape)} "
                f"and return tensors of it ({first_line(error)}): give num_latents, or a module "
                "that does"
            ) from None
    why = "between an example alone and in a batch: make each depend on itself, and not on chance"
    check_equal(name, "outputs", alone, together, why)
    network = _taken_apart(torch, name, module, x[:1])
    weights = np.random.default_rng(1).normal(size=together.shape)
    x.requires_grad_(True)
    (_flat(torch, module(x)) * torch.tensor(weights)).sum().backward()
    outputs, gradients = compared(network, inputs, weights)
    for what, found, wanted in (
        ("outputs", outputs, together),
        ("gradients", gradients, x.grad.numpy()),
    ):
        check_equal(name, what, found, wanted, "in JAX from those in PyTorch: please report this")
    return network, shapes, outputs


def _taken(torch: Any, encoder: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the first shape of an example that an encoder takes, or the first of all."""
    _check_module(torch, "encoder", encoder)
    for shape in shapes:
        module, x = _in_precision_of_jax(torch, encoder, np.zeros((2, *shape)))
        try:
            with torch.no_grad():
                module(x)
        except Exception:  # the other shape may fit, and `_translated` says why not
            continue
        return shape
    return shapes[0]


def _in_precision_of_jax(torch: Any, module: Any, inputs: np.ndarray) -> tuple[Any, Any]:
    """Return a module and inputs on the CPU with as many bits as JAX takes; a copy if need be."""
    dtype = getattr(torch, jnp.result_type(float).name)
    arrays = [*module.parameters(), *module.buffers()]
    floats = [a for a in arrays if a.is_floating_point()]
    if any(a.dtype != dtype for a in floats) or any(a.device.type != "cpu" for a in arrays):
        import copy

        module = copy.deepcopy(module).to("cpu", dtype)
    return module, torch.tensor(inputs, dtype=dtype)


def _tensors(torch: Any, output: Any) -> list[Any]:
    leaves = torch.utils._pytree.tree_leaves(output)
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"it returns a {type(leaf).__name__}, and not tensors alone")
    return leaves


def _flat(torch: Any, output: Any) -> Any:
    return torch.cat([a.flatten(1) for a in _tensors(torch, output)], dim=1)


def _taken_apart(torch: Any, name: str, module: Any, x: Any) -> Translated:
    """Return the steps of a module and its arrays."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PyTorch says to itself
            exported = torch.export.export(module, (x,))
            table = torch.export.default_decompositions()
            for operation in list(table):
                if str(operation).split(".")[1] in _WHOLE:
                    table.pop(operation)
            exported = exported.run_decompositions(table)
    except Exception as error:
        raise InputError(
            f"torch.export cannot take the {name} apart ({first_line(error)}): its steps must not "
            "depend on the values of tensors"
        ) from None
    owners: dict[int, str] = {}
    stored = module.state_dict(keep_vars=True)
    names = {key: owners.setdefault(id(tensor), key) for key, tensor in stored.items()}
    program, tensors = _program(torch, name, exported, names)
    tensors |= {key: stored[key] for key in names.values()}
    trained = {k for k, a in module.named_parameters() if a.requires_grad and a.is_floating_point()}
    arrays = {key: _array(tensor) for key, tensor in tensors.items()}
    return Translated(
        {key: a for key, a in arrays.items() if key in trained},
        {key: a for key, a in arrays.items() if key not in trained},
        program,
        tuple(x.shape[1:]),
        tuple(names.items()),
    )


def _array(tensor: Any) -> jax.Array:
    array = jnp.asarray(tensor.detach().numpy())
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(jnp.result_type(float)) if is_float else array


def _program(
    torch: Any, name: str, exported: Any, names: dict[str, str]
) -> tuple[Program, dict[str, Any]]:
    """Return the steps of an exported module, and the tensors that they start from."""
    specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    tensors = exported.state_dict | exported.constants
    kinds = exported.graph_signature.user_outputs
    first, numbers, steps, outputs = [], {}, [], ()

    def plain(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return numbers[argument]
        if isinstance(argument, list | tuple):
            return tuple(map(plain, argument))
        if isinstance(argument, torch.dtype):
            return jax.dtypes.canonicalize_dtype(str(argument).partition(".")[2]).name
        return argument

    nodes = list(exported.graph.nodes)
    held = [n for n in nodes if n.op == "placeholder" and specs[n.name].target is not None]
    for node in held:
        target = specs[node.name].target
        first.append(names.get(target, target))
        numbers[node] = Value(len(first) - 1)
    (numbers_input,) = [n for n in nodes if n.op == "placeholder" and n not in numbers]
    numbers[numbers_input] = Value(len(first))
    for node in nodes:
        if node.op == "output":
            outputs = tuple(numbers[n] for n in node.args[0] if n.name in kinds)
        elif node.op == "call_function" and not str(node.target).startswith(
            tuple(f"aten.{check}" for check in _CHECKS)
        ):
            options = {k: plain(v) for k, v in node.kwargs.items() if k not in _PLACES}
            step = Step(_operation(name, node), plain(node.args), tuple(options.items()))
            steps.append(step)
            numbers[node] = Value(len(first) + len(steps))
    used = {key: tensors[key] for key in first if key in tensors}
    return Program(tuple(first), tuple(steps), outputs), used


def _operation(name: str, node: Any) -> str:
    """Return the name of a step's operation in the table, or say that it has none."""
    full = "getitem" if "getitem" in str(node.target) else str(node.target).removeprefix("aten.")
    for found in (full, full.partition(".")[0]):
        if found in OPERATIONS:
            return found
    places = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    where = f" in its layer {places[-1]}" if places else ""
    raise InputError(
        f"the {name} uses {node.target}{where}, which cannot be translated to JAX: use another "
        "operation there"
    )
