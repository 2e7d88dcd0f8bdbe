"""Guides of NumPyro as proposals: what an annealing run needs is draws, and densities of any z."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpyro.distributions import Delta, Normal

from aisle.errors import InputError
from aisle.models.doors.sites import (
    Function,
    Latents,
    Sites,
    axis_of,
    check_sites,
    is_latent,
    log_probs,
    trained,
)
from aisle.types import Latent, Observation, PRNGKey, Scalar

# Of latents by name, in the order of a vector.
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class Independent(eqx.Module):
    """q(z|x) of one example, whose latent sites have a distribution each."""

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


class Chained(eqx.Module):
    """q(z|x) of one example, where a site depends on others: the guide runs for each density."""

    params: dict[str, PyTree]
    x: PyTree
    function: Function = eqx.field(static=True)

    def sample(self, key: PRNGKey) -> Latent:
        """Draw z, unconstrained."""
        sites, _ = self.function.trace(self.params, self.x, None, key)
        return self.function.inwards(sites)

    def log_prob(self, z: Latent) -> Scalar:
        """Return the log-density of unconstrained latents."""
        sites, volume = self.function.trace(self.params, self.x, z, jax.random.key(0))
        return volume + log_probs(sites, [way.site for way in self.function.latents])


class Packed(eqx.Module):
    """q(z|x) of one example, as a law of all unconstrained latents in one vector."""

    fn: Any
    shapes: Shapes = eqx.field(static=True)

    def sample(self, key: PRNGKey) -> Latent:
        """Draw z, unconstrained."""
        return self.unpack(self.fn.sample(key))

    def log_prob(self, z: Latent) -> Scalar:
        """Return the log-density of unconstrained latents."""
        vector = jnp.concatenate([jnp.ravel(z[name]) for name, _ in self.shapes])
        return jnp.sum(self.fn.log_prob(vector))

    @property
    def scale(self) -> Latent:
        """Standard deviations of unconstrained latents, where they are known."""
        try:
            return self.unpack(jnp.sqrt(self.fn.variance))
        except NotImplementedError:
            raise AttributeError("scale") from None

    def unpack(self, vector: Any) -> Latent:
        """Return the latents that a vector holds."""
        ends = np.cumsum([math.prod(shape) for _, shape in self.shapes])
        parts = jnp.split(vector, ends[:-1])
        pairs = zip(self.shapes, parts, strict=True)
        return {name: part.reshape(shape) for (name, shape), part in pairs}


class Guide(eqx.Module):
    """The proposal of a NumPyro guide.

    Attributes:
        params: its parameters by name, unconstrained.
        function: the guide.
        is_chained: whether a site depends on another.
        packed: the site of a vector of all latents, and their shapes in its order.
    """

    params: dict[str, PyTree]
    function: Function = eqx.field(static=True)
    is_chained: bool = eqx.field(static=True, default=False)
    packed: tuple[str, Shapes] | None = eqx.field(static=True, default=None)

    def __call__(self, x: Observation) -> Independent | Chained | Packed:
        """Run the guide on one example."""
        if self.is_chained:
            return Chained(self.params, x, self.function)
        sites, _ = self.function.trace(self.params, x, None, jax.random.key(0))
        if self.packed is not None:
            name, shapes = self.packed
            return Packed(sites[name]["fn"], shapes)
        fns = {way.site: sites[way.site]["fn"] for way in self.function.latents}
        return Independent(fns, self.function.latents)


def guided(function: Function, params: PyTree, x: Any, plate: str | None, model: Any) -> Guide:
    """Return a guide as a proposal, if its sites are those of the model."""
    x = jax.tree.map(jnp.asarray, x)
    own_params = trained(function.first_sites(params, x), params)
    traces = (function.trace(own_params, x, None, jax.random.key(seed)) for seed in (1, 2))
    first, second = (sites for sites, _ in traces)
    vectors = [name for name, site in first.items() if is_latent(site) and _is_auxiliary(site)]
    own = {name for name, site in first.items() if is_latent(site)} - set(vectors)
    names = {way.site for way in function.latents}
    if names != own:
        raise InputError(
            f"has the latent sites {sorted(own)} but the model {sorted(names)}: give a guide with "
            "the same, such as AutoNormal",
            argument="guide",
        )
    if vectors:
        site, shapes = first[vectors[0]], _shapes(first, vectors, plate, model)
        guide = Guide(own_params, function, packed=(vectors[0], shapes))
        z = Packed(site["fn"], shapes).unpack(site["value"])
    else:
        check_sites("guide", first)
        for name in names:
            axis_of("guide", first[name], plate)
        laws = ([trace[name]["fn"] for name in names] for trace in (first, second))
        pairs = zip(*map(jax.tree.leaves, laws), strict=True)
        is_chained = not all(np.array_equal(*pair) for pair in pairs)
        guide = Guide(own_params, function, is_chained)
        z = function.inwards(first)
    wanted, _ = model.function.trace(model.params, x, z, jax.random.key(0))
    _check_values(first, {name: wanted[name] for name in names})
    _check_density(guide(x), z)
    return guide


def _is_auxiliary(site: dict[str, Any]) -> bool:
    return bool(site["infer"].get("is_auxiliary"))


def _shapes(sites: Sites, vectors: list[str], plate: str | None, model: Any) -> Shapes:
    """Return the latents that a guide makes of one vector, as most autoguides do, in its order."""
    name, *others = vectors
    check_sites("guide", {name: sites[name]})
    axis_of("guide", sites[name], plate)
    # Points are made of the vector in the order of the trace.
    order = [n for n, site in sites.items() if is_latent(site) and n != name]
    z = jax.eval_shape(model.sample_prior, jax.random.key(0))
    shapes = tuple((n, z[n].shape) for n in order if n in z)
    size = sum(math.prod(shape) for _, shape in shapes)
    are_points = all(isinstance(sites[n]["fn"], Delta) for n in order)
    if others or not are_points or sites[name]["value"].shape != (size,):
        raise InputError(
            f"draws its latents by way of {', '.join(vectors)}, which is not one vector of all "
            "of them: give AutoMultivariateNormal, or a guide that draws each",
            argument="guide",
        )
    return shapes


def _check_values(sites: Sites, wanted: Sites) -> None:
    """Refuse a guide that makes other values of the same unconstrained numbers than the model."""
    for name, site in wanted.items():
        if not np.allclose(sites[name]["value"], site["value"], rtol=1e-4, atol=1e-6):
            raise InputError(
                f"draws {name} from another support than the model: give a distribution of "
                f"{site['fn'].support}",
                argument="guide",
            )


def _check_density(q: Independent | Chained | Packed, z: Latent) -> None:
    """Refuse a guide that can be drawn from, and whose density at a given point is not known."""
    try:
        q.log_prob(z)
    except NotImplementedError:
        raise InputError(
            "has no density that can be computed at a given point, as flows without an inverse: "
            "give another, such as AutoMultivariateNormal",
            argument="guide",
        ) from None
