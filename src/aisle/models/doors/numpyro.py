"""Models and guides of NumPyro: their traces say what densities and samples are."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpyro import validation_enabled

from aisle.errors import InputError
from aisle.models.distributions import PriorProposal
from aisle.models.doors.guides import guided
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
        return self.function.inwards(sites)

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
        guide: a function of x with the same latent sites, or an autoguide, such as
            `AutoMultivariateNormal`; None starts chains at the prior.
        example: one example, of the shape and type of all.
        params: of model and guide, such as `svi_result.params`.
        plate: name of the plate of examples, for functions of a batch, which are then called with
            a batch of one; by default they are called with an example as it is.
    """
    params = params or {}
    function = Function(model, plate is not None)
    known = probes(example)
    with validation_enabled(False):
        sites = function.first_sites(params, known)
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
    return built, guided(Function(guide, plate is not None, ways), params, example, plate, built)
