"""Methods that train: VAE, IWAE, DReG, MHHMC and AIS.

With log w_k the log-weights of K samples and v_k their normalised weights, gradients stopped where
a bar is drawn:

    VAE     theta: -mean log p(x, z̄_k)         phi: -mean [log p(x, z_k) - log q(z_k)]
    IWAE    theta: -sum v̄_k log p(x, z̄_k)      phi: -sum v̄_k log w_k
    DReG    theta: as IWAE                      phi: -sum v̄_k² log w_k, q's own parameters stopped
    MHHMC   theta: -mean log p(x, z̄_k)         phi: see below; betas 0, 1, ..., 1
    AIS     theta: -sum v̄_k log p(x, z̄_k)      phi: see below

Moves at the posterior do not change a weight: with `num_states` above 1, log p(x, z̄_k) is the mean
over the states after the last of them. It has less noise, and a little more bias, as the states
before the last one are further from the posterior.

With the `precision` bfloat16, chains walk on a rounded decoder (`aisle.models.networks.rounded`),
which is another density near the model's, a few hundredths of a nat away, and their weights are of
that. Theta's gradient, at the states that they end in, and bounds on held-out data are the model's.

Chains offer a choice for phi. `elbo`, the paper's, is that of VAE with one sample: the exclusive
KL(q || p). The ends of the chains are samples near the posterior, already paid for, and `wake` fits
q to them by -sum v̄_k log q(z̄_k), the inclusive KL(p || q) (the wake phase of Bornschein & Bengio,
2015). `elbo+wake` is the sum of both.

DReG is the doubly reparameterised gradient of Tucker et al. (2019), MHHMC the method of Hoffman
(2017), AIS Algorithm 1 of Ding & Freedman (2020).
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aisle.annealing import (
    Annealed,
    Kernel,
    anneal_with_states,
    effective_sample_size,
    log_mean_exp,
    normalised_weights,
    schedules,
)
from aisle.annealing.ais import Ladder, sample_start
from aisle.annealing.importance import importance_log_weights
from aisle.annealing.path import times
from aisle.annealing.tuning import StepSizes, interpolated, nudge
from aisle.errors import InputError, check_count
from aisle.learning.protocol import Estimate, Losses, Metrics
from aisle.models.joint import log_joint
from aisle.models.networks import rounded
from aisle.objects import Chosen
from aisle.types import Distribution, Latent, Model, Observation, PRNGKey, Proposal, Scalar

# A bound on held-out examples: chains and their temperatures.
_BOUND_CHAINS, _BOUND_TEMPERATURES = 4, 50

Tree = TypeVar("Tree")


@dataclass(frozen=True, repr=False)
class _Samples(Chosen):
    """Base of the methods that draw K samples of q and keep no state."""

    num_samples: int = 5

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)

    @property
    def num_gradients(self) -> int:
        """K: one pass over the samples serves theta and phi."""
        return self.num_samples

    def init(self) -> tuple[()]:
        """Return no state."""
        return ()

    def adapt(self, state: tuple[()], metrics: Metrics) -> tuple[()]:
        """Return no state."""
        del metrics
        return state


@dataclass(frozen=True, repr=False)
class VAE(_Samples):
    """Evidence lower bound, by K reparameterised samples of equal weight.

    Example:
        >>> aisle.VAE()
        aisle.VAE(num_samples=1)
    """

    num_samples: int = 1

    def estimate(
        self, key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: tuple[()]
    ) -> Estimate:
        """Estimate the losses of one example."""
        del state
        q = proposal(x)
        z = _samples(key, q, self.num_samples)
        log_weights = _log_weights(stop(model), q, x, z)
        losses = Losses(-jnp.mean(_log_joints(model, x, stop(z))), -jnp.mean(log_weights))
        return losses, _without_chains(jnp.mean(log_weights), log_weights)


@dataclass(frozen=True, repr=False)
class IWAE(_Samples):
    """Importance-weighted bound of K samples.

    Example:
        >>> aisle.IWAE(num_samples=50)
        aisle.IWAE(num_samples=50)
    """

    def estimate(
        self, key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: tuple[()]
    ) -> Estimate:
        """Estimate the losses of one example."""
        del state
        q = proposal(x)
        z = _samples(key, q, self.num_samples)
        log_weights = _log_weights(stop(model), q, x, z)
        # The gradient of -log mean w_k, written so that the compiler sees that theta and phi weigh
        # the samples alike, and passes over them once.
        weights = stop(normalised_weights(log_weights))
        phi = -jnp.sum(times(weights, log_weights))
        losses = Losses(_weighted(model, x, z, weights), phi)
        return losses, _without_chains(log_mean_exp(log_weights), log_weights)


@dataclass(frozen=True, repr=False)
class DReG(_Samples):
    """Importance-weighted bound, with the doubly reparameterised gradient for phi.

    Example:
        >>> aisle.DReG(num_samples=50).num_gradients
        100
    """

    @property
    def num_gradients(self) -> int:
        """2 K: theta's and phi's gradients weigh the samples differently."""
        return 2 * self.num_samples

    def estimate(
        self, key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: tuple[()]
    ) -> Estimate:
        """Estimate the losses of one example."""
        del state
        q = proposal(x)
        z = _samples(key, q, self.num_samples)
        # Only the path from phi through z is differentiated: the score of q has mean zero here.
        log_weights = _log_weights(stop(model), stop(proposal)(x), x, z)
        weights = stop(normalised_weights(log_weights))
        phi = -jnp.sum(times(weights**2, log_weights))
        losses = Losses(_weighted(model, x, z, weights), phi)
        return losses, _without_chains(log_mean_exp(log_weights), log_weights)


PhiObjective = Literal["elbo", "elbo+wake", "wake"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, repr=False)
class _Chains(Chosen):
    """Base of the methods that run K chains of T transitions; step sizes are their state.

    Attributes:
        num_samples: K, chains of an example.
        num_temperatures: T, transitions of a chain.
        kernel: schedule, transition and the acceptance that step sizes are adapted towards.
        phi_objective: what trains the proposal; see the module.
        num_states: last states of each chain that theta's gradient is averaged over, all of them
            at the posterior.
        precision: of the matrix products inside the chains; all else is in single precision.
    """

    num_samples: int = 5
    num_temperatures: int = 11
    kernel: Kernel = Kernel.tuned()
    phi_objective: PhiObjective = "elbo"
    num_states: int = 1
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check_count("num_samples", self.num_samples)
        check_count("num_temperatures", self.num_temperatures)
        check_count("num_states", self.num_states)
        if not isinstance(self.kernel, Kernel):
            raise InputError(
                f"is {self.kernel!r}: give a kernel, such as aisle.Kernel.tuned()",
                argument="kernel",
            )
        for name, choices in (("phi_objective", PhiObjective), ("precision", Precision)):
            value = getattr(self, name)
            if value not in choices.__args__:
                raise InputError(
                    f"is {value!r}: choose from {', '.join(choices.__args__)}", argument=name
                )
        self.kernel.betas(self.num_temperatures)
        if self.num_states > self.most_states:
            raise InputError(
                f"is {self.num_states} but the moves at the posterior are {self.most_states} of "
                f"{self.num_temperatures}: give fewer, or a schedule such as ramp",
                argument="num_states",
            )

    @property
    def most_states(self) -> int:
        """Moves at the posterior, the states after which theta's gradient may be averaged over."""
        return int(np.sum(np.asarray(self._betas()[1:]) == 1))

    @property
    def num_gradients(self) -> int:
        """Each chain and, for theta, its states; and one sample for phi if the ELBO trains it."""
        # By hand: a ladder has arrays, which start JAX's backend, and the default recipe is made
        # before a cluster is joined.
        chain = 1 + self.num_temperatures * self.kernel.transition.num_gradients
        return self.num_samples * (chain + self.num_states) + ("elbo" in self.phi_objective)

    def init(self) -> StepSizes:
        """Return the first step sizes."""
        return self.kernel.first_step_sizes(self.num_temperatures)

    def adapt(self, state: StepSizes, metrics: Metrics) -> StepSizes:
        """Take each step size a little towards the kernel's target acceptance."""
        return nudge(
            state,
            metrics.acceptance,
            target=self.kernel.target_accept,
            largest=self.kernel.transition.largest_step_size,
        )

    @property
    def bound_gradients(self) -> int:
        """Gradients of log p(x, z) that `bound` costs."""
        return _BOUND_CHAINS * (
            1 + (_BOUND_TEMPERATURES - 1) * self.kernel.transition.num_gradients
        )

    def bound(
        self, key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: StepSizes
    ) -> Scalar:
        """Bound log p(x) by a few chains that are longer than those of training.

        Importance sampling would not do: an encoder of a model that learned by chains may be far
        from the posterior, and its bound then falls while log p(x) rises.
        """
        kernel = dataclasses.replace(self.kernel, schedule=schedules.sigmoid)
        betas = kernel.betas(_BOUND_TEMPERATURES)
        sizes = interpolated(betas, self.ladder(state).betas, state)
        ladder = kernel.ladder(_BOUND_TEMPERATURES, sizes, last_move=False)
        run, _ = _anneal_many(key, model, proposal, x, ladder, _BOUND_CHAINS)
        return log_mean_exp(run.log_weight)

    def ladder(self, state: StepSizes) -> Ladder:
        """Return what the chains of an update walk along."""
        return self.kernel.ladder(self.num_temperatures, state)

    def estimate(
        self, key: PRNGKey, model: Model, proposal: Proposal, x: Observation, state: StepSizes
    ) -> Estimate:
        """Estimate the losses of one example."""
        key_chains, key_phi = jax.random.split(key)
        ladder, number = self.ladder(state), self.num_states
        walked = rounded(model) if self.precision == "bfloat16" else model
        run, states = _anneal_many(key_chains, walked, proposal, x, ladder, self.num_samples)
        weights = self._weights(run.log_weight)
        if number == 1:
            # So that the other states are not kept in memory.
            theta = _weighted(model, x, run.z, weights)
        else:
            z = jax.tree.map(lambda a: a[:, -number:].reshape(-1, *a.shape[2:]), states)
            theta = _weighted(model, x, z, jnp.repeat(weights / number, number))
        phi = jnp.zeros(())
        if "elbo" in self.phi_objective:
            q = proposal(x)
            phi -= _log_weights(stop(model), q, x, _samples(key_phi, q, 1))[0]
        if "wake" in self.phi_objective:
            log_q = jax.vmap(proposal(x).log_prob)(stop(run.z))
            phi -= jnp.sum(times(weights, log_q))
        metrics = Metrics(
            log_mean_exp(run.log_weight),
            effective_sample_size(run.log_weight),
            jnp.mean(run.info.acceptance, axis=0),
            jnp.sum(run.info.is_nonfinite).astype(run.log_weight.dtype),
        )
        return Losses(theta, phi), metrics

    def lengthened(self, num_temperatures: int) -> "_Chains":
        """Return the method with chains of so many temperatures, and states in proportion."""
        one = dataclasses.replace(self, num_temperatures=num_temperatures, num_states=1)
        states = self.num_states * num_temperatures // self.num_temperatures
        return dataclasses.replace(one, num_states=max(1, min(states, one.most_states)))

    def _betas(self) -> schedules.Betas:
        """Return the inverse temperatures of a chain."""
        return self.kernel.betas(self.num_temperatures)

    def _weights(self, log_weights: Float[Array, " samples"]) -> Float[Array, " samples"]:
        """Return what each chain counts."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class MHHMC(_Chains):
    """HMC at the posterior from samples of q, all chains of equal weight (Hoffman, 2017).

    Of the kernel's schedule only the number of temperatures counts.

    Example:
        >>> aisle.MHHMC(num_samples=1, kernel=aisle.Kernel.paper()).num_gradients
        58
    """

    def ladder(self, state: StepSizes) -> Ladder:
        """Return what the chains of an update walk along: the posterior from the first move on."""
        return Ladder(self._betas(), state, self.kernel.transition, True)

    def _betas(self) -> schedules.Betas:
        return schedules.immediate(self.num_temperatures)

    def _weights(self, log_weights: Float[Array, " samples"]) -> Float[Array, " samples"]:
        return jnp.full_like(log_weights, 1 / len(log_weights))


@dataclass(frozen=True, repr=False)
class AIS(_Chains):
    """K chains annealed from q to the posterior, by their weights (Ding & Freedman, 2020).

    Example:
        >>> aisle.AIS(num_samples=5, num_temperatures=11, kernel=aisle.Kernel.paper()).num_gradients
        286
    """

    def _weights(self, log_weights: Float[Array, " samples"]) -> Float[Array, " samples"]:
        return normalised_weights(log_weights)


def importance_bound(
    key: PRNGKey, model: Model, proposal: Proposal, x: Observation, num_samples: int
) -> Scalar:
    """Return log 1/K sum_k p(x, z_k) / q(z_k|x) of one example: a lower bound of log p(x)."""
    q, density = proposal(x), log_joint(model, x)
    return log_mean_exp(importance_log_weights(key, q, density, num_samples))


def stop(tree: Tree) -> Tree:
    """Stop gradients at every array of a tree, which may hold functions too."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, tree)


def _anneal_many(
    key: PRNGKey, model: Model, proposal: Proposal, x: Observation, ladder: Ladder, number: int
) -> tuple[Annealed, Latent]:
    """Anneal chains, with all gradients stopped before the first step; return their states, too."""
    # The proposal and not its distribution, which need not be a pytree.
    density, q = log_joint(stop(model), x), stop(proposal)(x)
    keys = jax.random.split(key, number)
    return jax.vmap(lambda k: anneal_with_states(k, q, density, ladder))(keys)


def _samples(key: PRNGKey, q: Distribution, num_samples: int) -> Latent:
    # The keys of `_anneal_many`, so that AIS without a move draws the samples of IWAE.
    keys = jax.random.split(jax.random.split(key)[0], num_samples)
    return jax.vmap(lambda k: sample_start(k, q))(keys)


def _log_joints(model: Model, x: Observation, z: Latent) -> Float[Array, " samples"]:
    return jax.vmap(log_joint(model, x))(z)


def _log_weights(
    model: Model, q: Distribution, x: Observation, z: Latent
) -> Float[Array, " samples"]:
    return _log_joints(model, x, z) - jax.vmap(q.log_prob)(z)


def _weighted(model: Model, x: Observation, z: Latent, weights: Array) -> Scalar:
    return -jnp.sum(times(weights, _log_joints(model, x, stop(z))))


def _without_chains(bound: Scalar, log_weights: Float[Array, " samples"]) -> Metrics:
    size = effective_sample_size(log_weights)
    return Metrics(*stop((bound, size, jnp.zeros(0), jnp.zeros(()))))
