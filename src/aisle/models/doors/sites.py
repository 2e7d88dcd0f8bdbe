"""What the sites of a NumPyro model or guide are, seen from one example."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpyro import handlers
from numpyro.distributions import Delta, Distribution, Unit, biject_to, constraints

from aisle.errors import InputError
from aisle.types import Latent, Observation, PRNGKey

Sites = dict[str, dict[str, Any]]


class Latents(NamedTuple):
    """How one latent site is made of unconstrained numbers, without the axis of the plate."""

    site: str
    axis: int | None

    def outwards(self, fn: Distribution, z: Any) -> tuple[Any, Any]:
        """Return the value of the site, and the log-volume that the way there adds."""
        transform = biject_to(fn.support)
        inside = z if self.axis is None else jnp.expand_dims(z, self.axis)
        value = transform(inside)
        return value, jnp.sum(transform.log_abs_det_jacobian(inside, value))

    def inwards(self, fn: Distribution, value: Any) -> Any:
        """Return the unconstrained numbers of a value."""
        inside = biject_to(fn.support).inv(value)
        return inside if self.axis is None else jnp.squeeze(inside, self.axis)


@dataclass(frozen=True)
class Function:
    """A model or a guide as a function of one example, and what its sites are."""

    call: Callable[..., Any]
    has_plate: bool
    latents: tuple[Latents, ...] = ()

    def first_sites(self, params: PyTree, x: Observation) -> Sites:
        """Run it once, with parameters as NumPyro has them, and return its sites."""
        call = handlers.substitute(self.call, data=params)
        return replace(self, call=call).trace({}, x, None, jax.random.key(0))[0]

    def trace(self, params: PyTree, x: Observation, z: Any, key: PRNGKey) -> tuple[Sites, Any]:
        """Run it; return its sites, and the log-volume of the latents that it was given."""
        volumes, ways = [], {each.site: each for each in self.latents}

        def value(site: dict[str, Any]) -> Any:
            name = site["name"]
            if site["type"] == "param" and name in params:
                return constrained(params[name], site["kwargs"].get("constraint"))
            if site["type"] == "sample" and z is not None and name in z:
                found, volume = ways[name].outwards(site["fn"], z[name])
                volumes.append(volume)
                return found
            return None

        batch = jax.tree.map(lambda a: jnp.asarray(a)[None], x) if self.has_plate else x
        run = handlers.seed(handlers.substitute(self.call, substitute_fn=value), key)
        return handlers.trace(run).get_trace(batch), sum(volumes, jnp.zeros(()))

    def inwards(self, sites: Sites) -> Latent:
        """Return the unconstrained numbers of the latent sites."""
        found = [(way, sites[way.site]) for way in self.latents]
        return {way.site: way.inwards(site["fn"], site["value"]) for way, site in found}


def constrained(value: PyTree, constraint: Any, *, back: bool = False) -> PyTree:
    """Return a parameter where its constraint puts it, or on the way back from there."""
    if constraint is None or constraint is constraints.real:
        return value
    transform = biject_to(constraint)
    return (transform.inv if back else transform)(value)


def is_latent(site: dict[str, Any]) -> bool:
    """Say whether a site is sampled and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def log_probs(sites: Sites, names: Any) -> Any:
    """Return the log-density of some sites."""
    terms = [jnp.sum(sites[name]["fn"].log_prob(sites[name]["value"])) for name in names]
    return sum(terms, jnp.zeros(()))


def trained(sites: Sites, params: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return the parameters of a function, unconstrained: those that are given, or its own."""
    return {
        name: constrained(
            jax.tree.map(jnp.asarray, params.get(name, site["value"])),
            site["kwargs"].get("constraint"),
            back=True,
        )
        for name, site in sites.items()
        if site["type"] == "param"
    }


def check_sites(what: str, sites: Sites) -> None:
    """Refuse what has no density that can be differentiated, or one that is not sampled from."""
    for name, site in sites.items():
        if site["type"] != "sample":
            continue
        if isinstance(site["fn"], Unit):
            reason = "is a factor, which no data are drawn from: make it a distribution"
        elif isinstance(site["fn"], Delta):
            reason = "is a point, which has no density: give it a distribution"
        elif is_latent(site) and site["fn"].support.is_discrete:
            reason = "is a discrete latent: sum it out, as in a mixture"
        elif site["scale"] is not None:
            reason = "is scaled, as by a plate that takes a part: leave the scale out"
        else:
            continue
        raise InputError(f"the site {name} of the {what} {reason}")


def axis_of(what: str, site: dict[str, Any], plate: str | None) -> int | None:
    """Return which axis of a site is the plate of examples."""
    if plate is None:
        return None
    dims = [frame.dim for frame in site["cond_indep_stack"] if frame.name == plate]
    if not dims:
        raise InputError(
            f"the site {site['name']} of the {what} is outside of the plate {plate}: put it in, or "
            "make it a parameter"
        )
    return len(site["fn"].batch_shape) + dims[0]


def probes(example: Observation) -> Observation:
    """Return an example whose arrays are known again: each has an order of numbers of its own."""
    leaves, structure = jax.tree.flatten(example)
    orders = np.random.default_rng(0)
    found = [orders.permutation(np.size(a)).reshape(np.shape(a)) + i for i, a in enumerate(leaves)]
    return jax.tree.unflatten(structure, [jnp.asarray(a + 0.5) for a in found])


def observed_sites(sites: Sites, leaves: list[Any], plate: str | None) -> tuple[str, ...]:
    """Return the observed site of each array of an example."""
    free = {n: s for n, s in sites.items() if s["type"] == "sample" and s["is_observed"]}
    found = []
    for leaf in leaves:
        names = [n for n, s in free.items() if np.array_equal(jnp.ravel(s["value"]), leaf.ravel())]
        if not names:
            raise InputError(
                "the example has an array that no site of the model observes as it is: observe x "
                "itself, and transform the distribution instead"
            )
        site = free.pop(names[0])
        axis_of("model", site, plate)
        if math.prod(site["fn"].shape()) != leaf.size:
            raise InputError(
                f"the site {names[0]} of the model draws {math.prod(site['fn'].shape())} numbers "
                f"and observes {leaf.size}: expand its distribution"
            )
        found.append(names[0])
    if free:
        raise InputError(
            f"the site {min(free)} of the model observes something else than x: make it part of x"
        )
    return tuple(found)
