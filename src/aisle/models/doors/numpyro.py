"""Models and guides of NumPyro: their traces say what densities and samples are."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpyro import validation_enabled
from numpyro.distributions import Normal

from aisle.errors import InputError
from aisle.models.distributions import PriorProposal
from aisle.models.doors.sites import (
    Function,
    Latents,
    Sites,
    axis_of,
    check_sites,
    is_latent,
    log_probs,
    observed_sites,
    probes,
    trained,
)
from aisle.types import Latent, Observation, PRNGKey, Proposal, Scalar


class NumPyroModel(eqx.Module):
    """p(x, z) of a NumPyro model: z are its latent sites by name, unconstrained.

    Attributes:
        params: its parameters by name, unconstrained, so that they can be trained.
        function: the model.
        observed: its observed sites, one for each array of an example.
        example: structure, shapes and types of an example.
    """

    params: dict[str, PyTree]
    function: Function = eqx.field(static=True)
    observed: tuple[str, ...] = eqx.field(static=True)
    example: tuple[Any, tuple[tuple[int, ...], ...]] = eqx.field(static=True)

    def log_prior(self, z: Latent) -> Scalar:
        """Return log p(z) of unconstrained latents."""
        sites, volume = self._trace(z)
        return volume + log_probs(sites, [each.site for each in self.function.latents])

    def log_likelihood(self, x: Observation, z: Latent) -> Scalar:
        """Return log p(x|z)."""
        sites, _ = self._trace(z, x)
        return log_probs(sites, self.observed)

    def sample_prior(self, key: PRNGKey) -> Latent:
        """Draw z."""
        sites, _ = self._trace(None, key=key)
        return _inwards(self.function, sites)

    def sample_observation(self, key: PRNGKey, z: Latent) -> Observation:
        """Draw x given z."""
        keys = dict(zip(self.observed, jax.random.split(key, len(self.observed)), strict=True))
        return self._observation(z, lambda name, fn: fn.sample(keys[name]))

    def mean_observation(self, z: Latent) -> Observation:
        """Return E[x|z]."""
        return self._observation(z, lambda _, fn: fn.mean)

    def values(self, z: Latent) -> dict[str, Any]:
        """Return the latent sites of one z as the NumPyro model has them."""
        sites, _ = self._trace(z)
        return {each.site: sites[each.site]["value"] for each in self.function.latents}

    def constrained_params(self) -> dict[str, PyTree]:
        """Return the parameters as NumPyro has them."""
        sites, _ = self._trace(None)
        return {name: sites[name]["value"] for name in self.params}

    def _trace(self, z: Any, x: Any = None, key: Any = None) -> tuple[Sites, Any]:
        if x is None:
            structure, shapes = self.example
            x = jax.tree.unflatten(structure, [jnp.zeros(shape) for shape in shapes])
        key = jax.random.key(0) if key is None else key
        return self.function.trace(self.params, x, z, key)

    def _observation(self, z: Latent, draw: Callable[[str, Any], Any]) -> Observation:
        sites, _ = self._trace(z)
        structure, shapes = self.example
        drawn = [draw(name, sites[name]["fn"]) for name in self.observed]
        pairs = zip(drawn, shapes, strict=True)
        return jax.tree.unflatten(structure, [a.reshape(shape) for a, shape in pairs])


class Guided(eqx.Module):
    """q(z|x) of a guide for one example: a distribution for each latent site."""

    fns: dict[str, Any]
    latents: tuple[Latents, ...] = eqx.field(static=True)

    def sample(self, key: PRNGKey) -> Latent:
        """Draw z, unconstrained."""
        keys = jax.random.split(key, len(self.latents))
        pairs = zip(keys, self.latents, strict=True)
        return {
            way.site: way.inwards(self.fns[way.site], self.fns[way.site].sample(k))
            for k, way in pairs
        }

    def log_prob(self, z: Latent) -> Scalar:
        """Return the log-density of unconstrained latents."""
        found = jnp.zeros(())
        for way in self.latents:
            fn = self.fns[way.site]
            value, volume = way.outwards(fn, z[way.site])
            found += volume + jnp.sum(fn.log_prob(value))
        return found

    @property
    def scale(self) -> Latent:
        """Standard deviations of unconstrained latents, where all of them are normal."""
        return {way.site: self._scale(way) for way in self.latents}

    def _scale(self, way: Latents) -> Any:
        fn = self.fns[way.site]
        z = jax.eval_shape(lambda: way.inwards(fn, fn.sample(jax.random.key(0))))
        while hasattr(fn, "base_dist"):
            fn = fn.base_dist
        if not isinstance(fn, Normal):
            raise AttributeError("scale")
        scale = jnp.broadcast_to(jnp.asarray(fn.scale), fn.batch_shape)
        # The axis of the plate has one place.
        return scale.reshape(z.shape) if scale.size == z.size else jnp.broadcast_to(scale, z.shape)


class Guide(eqx.Module):
    """The proposal of a NumPyro guide."""

    params: dict[str, PyTree]
    function: Function = eqx.field(static=True)

    def __call__(self, x: Observation) -> Guided:
        """Run the guide on one example."""
        sites, _ = self.function.trace(self.params, x, None, jax.random.key(0))
        fns = {way.site: sites[way.site]["fn"] for way in self.function.latents}
        return Guided(fns, self.function.latents)


def from_numpyro(
    model: Callable[..., Any],
    guide: Callable[..., Any] | None = None,
    *,
    example: Observation,
    params: dict[str, PyTree] | None = None,
    plate: str | None = None,
) -> tuple[NumPyroModel, Proposal]:
    """Return a NumPyro model, and its guide as the proposal.

    Latents may have any continuous support; z is a dictionary of them, unconstrained.
    `model.values(z)` returns them as NumPyro has them, and `model.constrained_params()` the
    parameters, which `aisle.fit` trains.

    Example:
        >>> import numpyro, numpyro.distributions as dist
        >>> def schools(y):
        ...     tau = numpyro.sample("tau", dist.HalfNormal(5.0))
        ...     with numpyro.plate("schools", 3):
        ...         theta = numpyro.sample("theta", dist.Normal(0.0, tau))
        ...         numpyro.sample("y", dist.Normal(theta, 10.0), obs=y)
        >>> model, proposal = aisle.from_numpyro(schools, example=np.zeros(3))
        >>> aisle.sample(model, 4).shape
        (4, 3)

    Args:
        model: a function of x, with one observed site for each array of x. Data that are not
            modelled belong into a closure.
        guide: a function of x with the same latent sites, none of which depends on another, such
            as an `AutoNormal`; None starts chains at the prior.
        example: one example, of the shape and type of all.
        params: of model and guide, such as `svi_result.params`.
        plate: name of the plate of examples, for functions of a batch, which are then called with
            a batch of one; by default they are called with an example as it is.
    """
    params, key = params or {}, jax.random.key(0)
    function = Function(model, plate is not None)
    known = probes(example)
    with validation_enabled(False):
        sites, _ = function.trace(params, known, None, key)
    check_sites("model", sites)
    latent = {name: s for name, s in sites.items() if is_latent(s)}
    ways = tuple(Latents(name, axis_of("model", site, plate)) for name, site in latent.items())
    if not ways:
        raise InputError("has no latent site: there is nothing to integrate over", argument="model")
    leaves, structure = jax.tree.flatten(example)
    built = NumPyroModel(
        trained(sites, params),
        Function(model, plate is not None, ways),
        observed_sites(sites, jax.tree.leaves(known), plate),
        (structure, tuple(np.shape(leaf) for leaf in leaves)),
    )
    if guide is None:
        return built, PriorProposal(built)
    fns = {name: site["fn"] for name, site in latent.items()}
    return built, _guided(guide, params, example, ways, fns, plate)


def _guided(
    guide: Callable[..., Any],
    params: PyTree,
    x: Any,
    ways: tuple[Latents, ...],
    fns: dict[str, Any],
    plate: str | None,
) -> Guide:
    """Return a guide as a proposal, if its sites are those of the model, whose `fns` these are."""
    function = Function(guide, plate is not None, ways)
    x = jax.tree.map(jnp.asarray, x)
    own_params = trained(function.trace(params, x, None, jax.random.key(0))[0], params)
    traces = (function.trace(own_params, x, None, jax.random.key(seed)) for seed in (1, 2))
    first, second = (sites for sites, _ in traces)
    check_sites("guide", first)
    names, own = {way.site for way in ways}, {n for n, s in first.items() if is_latent(s)}
    if names != own:
        raise InputError(
            f"has the latent sites {sorted(own)} but the model {sorted(names)}: give a guide with "
            "the same, such as AutoNormal",
            argument="guide",
        )
    for way in ways:
        name = way.site
        pairs = [jax.tree.leaves(trace[name]["fn"]) for trace in (first, second)]
        if not all(np.array_equal(a, b) for a, b in zip(*pairs, strict=True)):
            raise InputError(
                f"draws {name} from a distribution that depends on other draws: make its sites "
                "independent, given x",
                argument="guide",
            )
        axis_of("guide", first[name], plate)
        # Of the same unconstrained numbers, both must make the same value.
        z = jnp.full_like(way.inwards(fns[name], fns[name].sample(jax.random.key(0))), 0.3)
        values = [way.outwards(fn, z)[0] for fn in (fns[name], first[name]["fn"])]
        if not np.allclose(*values):
            raise InputError(
                f"draws {name} from another support than the model: give a distribution of "
                f"{fns[name].support}",
                argument="guide",
            )
    return Guide(own_params, function)


def _inwards(function: Function, sites: Sites) -> Latent:
    found = [(way, sites[way.site]) for way in function.latents]
    return {way.site: way.inwards(site["fn"], site["value"]) for way, site in found}
