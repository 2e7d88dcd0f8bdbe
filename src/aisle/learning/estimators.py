"""Gradient estimators: vae, iwae, dreg, mh-hmc and ais.

Each is a function of one example, `(key, model, proposal, x, kernel) -> (losses, metrics)`, usable
in anybody's training loop: `jax.vmap` it over a batch with a key for each example, average, and
differentiate `losses.theta + losses.phi` with respect to (model, proposal). The gradient of `theta`
reaches the model only and that of `phi` the proposal only; none flows through a chain.

With log w_k the log-weights of K samples and v_k their normalised weights, gradients stopped where
a bar is drawn:

    vae     theta: -mean log p(x, z̄_k)         phi: -mean [log p(x, z_k) - log q(z_k)]
    iwae    theta: -sum v̄_k log p(x, z̄_k)      phi: -sum v̄_k log w_k
    dreg    theta: as iwae                      phi: -sum v̄_k² log w_k, q's own parameters stopped
    mh-hmc  theta: -mean log p(x, z̄_k)         phi: see below; betas 0, 1, ..., 1
    ais     theta: -sum v̄_k log p(x, z̄_k)      phi: see below

Chains offer a choice for phi. `elbo`, the paper's, is that of vae with one sample: the exclusive
KL(q || p). The ends of the chains are samples near the posterior, already paid for, and `wake` fits
q to them by -sum v̄_k log q(z̄_k), the inclusive KL(p || q) (the wake phase of Bornschein & Bengio,
2015). `elbo+wake` is the sum of both.

`dreg` is the doubly reparameterised gradient of Tucker et al. (2019), `mh-hmc` the method of
Hoffman (2017), `ais` Algorithm 1 of Ding & Freedman (2020).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from aisle.annealing import Kernel, effective_sample_size, log_mean_exp, normalised_weights
from aisle.annealing.ais import Annealed, sample_start
from aisle.annealing.kernel import gradients_per_chain, run_forward
from aisle.errors import InputError
from aisle.models.joint import log_joint
from aisle.types import Distribution, Latent, Model, Observation, PRNGKey, Proposal, Scalar


class Losses(NamedTuple):
    """What to minimise; see the module for where their gradients go."""

    theta: Scalar
    phi: Scalar


class Metrics(NamedTuple):
    """What is worth knowing of one example's estimate.

    Attributes:
        bound: lower bound of log p(x), in expectation: of ELBO, IWAE or AIS, as the method has it.
        effective_sample_size: of the K weights.
        acceptance: mean over the K chains, by temperature; empty without chains.
        num_nonfinite: transitions rejected for an energy that was not finite.
    """

    bound: Scalar
    effective_sample_size: Scalar
    acceptance: Float[Array, " moves"]
    num_nonfinite: Scalar


Estimate = tuple[Losses, Metrics]
Tree = TypeVar("Tree")


def vae(key: PRNGKey, model: Model, proposal: Proposal, x: Observation, kernel: Kernel) -> Estimate:
    """Estimate by K reparameterised samples of q, all of equal weight."""
    q = proposal(x)
    z = _samples(key, q, kernel.num_samples)
    log_weights = _log_weights(stop(model), q, x, z)
    losses = Losses(-jnp.mean(_log_joints(model, x, stop(z))), -jnp.mean(log_weights))
    return losses, _without_chains(jnp.mean(log_weights), log_weights)


def iwae(
    key: PRNGKey, model: Model, proposal: Proposal, x: Observation, kernel: Kernel
) -> Estimate:
    """Estimate by K importance-weighted samples of q."""
    q = proposal(x)
    z = _samples(key, q, kernel.num_samples)
    log_weights = _log_weights(stop(model), q, x, z)
    # The gradient of -log mean w_k, written so that the compiler sees that theta and phi weigh the
    # samples alike, and passes over them once.
    phi = -jnp.sum(stop(normalised_weights(log_weights)) * log_weights)
    losses = Losses(_weighted(model, x, z, log_weights), phi)
    return losses, _without_chains(log_mean_exp(log_weights), log_weights)


def dreg(
    key: PRNGKey, model: Model, proposal: Proposal, x: Observation, kernel: Kernel
) -> Estimate:
    """Estimate as iwae does, with the doubly reparameterised gradient for phi."""
    q = proposal(x)
    z = _samples(key, q, kernel.num_samples)
    # Only the path from phi through z is differentiated: the score of q has mean zero here.
    log_weights = _log_weights(stop(model), stop(proposal)(x), x, z)
    squares = stop(normalised_weights(log_weights)) ** 2
    losses = Losses(_weighted(model, x, z, log_weights), -jnp.sum(squares * log_weights))
    return losses, _without_chains(log_mean_exp(log_weights), log_weights)


def mh_hmc(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    x: Observation,
    kernel: Kernel,
    phi_objective: str = "elbo",
) -> Estimate:
    """Estimate by K chains of HMC at the posterior from samples of q, all of equal weight."""
    at_posterior = jnp.minimum(jnp.arange(len(kernel.betas)), 1).astype(kernel.betas.dtype)
    kernel = eqx.tree_at(lambda k: k.betas, kernel, at_posterior)
    key_chains, key_phi = jax.random.split(key)
    run = _chains(key_chains, model, proposal, x, kernel)
    theta = -jnp.mean(_log_joints(model, x, run.z))
    equal = jnp.full(kernel.num_samples, 1 / kernel.num_samples)
    phi = _phi_loss(phi_objective, key_phi, model, proposal, x, run.z, equal)
    return Losses(theta, phi), _with_chains(run)


def ais(
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    x: Observation,
    kernel: Kernel,
    phi_objective: str = "elbo",
) -> Estimate:
    """Estimate by K chains annealed from q to the posterior, by their weights."""
    key_chains, key_phi = jax.random.split(key)
    run = _chains(key_chains, model, proposal, x, kernel)
    theta = _weighted(model, x, run.z, run.log_weight)
    weights = normalised_weights(run.log_weight)
    phi = _phi_loss(phi_objective, key_phi, model, proposal, x, run.z, weights)
    return Losses(theta, phi), _with_chains(run)


class Method(NamedTuple):
    """A registered estimator, with its cost.

    Attributes:
        estimate: the function.
        has_chains: whether it runs chains, whose step sizes are then adapted.
        num_gradients: gradients of log p(x, z) that one example costs, for a kernel.
        is_weighted: whether the samples of an example count by their weights, or alike.
    """

    estimate: Callable[..., Estimate]
    has_chains: bool
    num_gradients: Callable[[Kernel], int]
    is_weighted: bool = True


def _chain_gradients(kernel: Kernel) -> int:
    # Each chain and, for theta, its end; and the one sample of phi.
    return kernel.num_samples * (gradients_per_chain(kernel) + 1) + 1


METHODS: dict[str, Method] = {
    "vae": Method(vae, False, lambda kernel: kernel.num_samples, is_weighted=False),
    "iwae": Method(iwae, False, lambda kernel: kernel.num_samples),
    # Theta's and phi's gradients weigh the samples differently: two passes.
    "dreg": Method(dreg, False, lambda kernel: 2 * kernel.num_samples),
    "mh-hmc": Method(mh_hmc, True, _chain_gradients, is_weighted=False),
    "ais": Method(ais, True, _chain_gradients),
}


PHI_OBJECTIVES = ("elbo", "elbo+wake", "wake")


def named(name: str, phi_objective: str = "elbo") -> Method:
    """Return the method called `name`; methods without chains have one objective for phi."""
    if name not in METHODS:
        raise InputError(f"method is {name!r}: choose from {', '.join(METHODS)}")
    if phi_objective not in PHI_OBJECTIVES:
        choices = ", ".join(PHI_OBJECTIVES)
        raise InputError(f"phi_objective is {phi_objective!r}: choose from {choices}")
    method = METHODS[name]
    if phi_objective == "elbo":
        return method
    if not method.has_chains:
        raise InputError(
            f"phi_objective is {phi_objective!r} but {name} has no chains whose ends phi could be "
            "fitted to: use elbo"
        )
    # The one sample of the ELBO is not drawn where wake alone trains phi.
    saved = int(phi_objective == "wake")
    return method._replace(
        estimate=partial(method.estimate, phi_objective=phi_objective),
        num_gradients=lambda kernel: method.num_gradients(kernel) - saved,
    )


def stop(tree: Tree) -> Tree:
    """Stop gradients at every array of a tree, which may hold functions too."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, tree)


def _chains(
    key: PRNGKey, model: Model, proposal: Proposal, x: Observation, kernel: Kernel
) -> Annealed:
    """Anneal K chains, with all gradients stopped before the first step."""
    # The proposal and not its distribution, which need not be a pytree.
    density, q = log_joint(stop(model), x), stop(proposal)(x)

    def chain(key: PRNGKey) -> Annealed:
        return run_forward(key, q, density, kernel)

    return jax.vmap(chain)(jax.random.split(key, kernel.num_samples))


def _samples(key: PRNGKey, q: Distribution, num_samples: int) -> Latent:
    # The keys of `_chains`, so that ais without a move draws the samples of iwae.
    keys = jax.random.split(jax.random.split(key)[0], num_samples)
    return jax.vmap(lambda k: sample_start(k, q))(keys)


def _log_joints(model: Model, x: Observation, z: Latent) -> Float[Array, " samples"]:
    return jax.vmap(log_joint(model, x))(z)


def _log_weights(
    model: Model, q: Distribution, x: Observation, z: Latent
) -> Float[Array, " samples"]:
    return _log_joints(model, x, z) - jax.vmap(q.log_prob)(z)


def _weighted(model: Model, x: Observation, z: Latent, log_weights: Array) -> Scalar:
    return -jnp.sum(stop(normalised_weights(log_weights)) * _log_joints(model, x, stop(z)))


def _negative_elbo(key: PRNGKey, model: Model, proposal: Proposal, x: Observation) -> Scalar:
    q = proposal(x)
    return -_log_weights(stop(model), q, x, _samples(key, q, 1))[0]


def _phi_loss(
    objective: str,
    key: PRNGKey,
    model: Model,
    proposal: Proposal,
    x: Observation,
    z: Latent,
    weights: Float[Array, " samples"],
) -> Scalar:
    terms = []
    if "elbo" in objective:
        terms.append(_negative_elbo(key, model, proposal, x))
    if "wake" in objective:
        terms.append(-jnp.sum(stop(weights) * jax.vmap(proposal(x).log_prob)(stop(z))))
    return sum(terms, jnp.zeros(()))


def _without_chains(bound: Scalar, log_weights: Float[Array, " samples"]) -> Metrics:
    size = effective_sample_size(log_weights)
    return Metrics(*stop((bound, size, jnp.zeros(0), jnp.zeros(()))))


def _with_chains(run: Annealed) -> Metrics:
    return Metrics(
        log_mean_exp(run.log_weight),
        effective_sample_size(run.log_weight),
        jnp.mean(run.info.acceptance, axis=0),
        jnp.sum(run.info.is_nonfinite).astype(run.log_weight.dtype),
    )
