"""The same work by other means: how a user would write it without aisle.

Each function returns the seconds of one update of Algorithm 1, or of the baseline that it names, on
the networks of the IWAE study with a batch of 128, from data already on the device.
"""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.measure import best_seconds
from benchmarks.steps import BATCH, baseline, networks, pictures


def torch_seconds(K: int, T: int, L: int, repeats: int = 3) -> float:
    """Time Algorithm 1 in plain PyTorch: eager, autograd for each leapfrog step."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Linear(784, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 100)
    )
    decoder = nn.Sequential(
        nn.Linear(50, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 784)
    )
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-4)
    data = torch.from_numpy(pictures()[:BATCH]).float() / 255
    betas, step_sizes = torch.linspace(0, 1, T + 1), torch.full((T,), 0.02)

    def encode(x):
        mean, log_variance = encoder(x).chunk(2, dim=-1)
        return torch.distributions.Normal(mean, torch.exp(log_variance / 2))

    def log_p(x, z):
        prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)
        likelihood = torch.distributions.Bernoulli(logits=decoder(z), validate_args=False)
        return prior + likelihood.log_prob(x).sum(-1)

    def log_f(x, q, z, beta):
        return (1 - beta) * q.log_prob(z).sum(-1) + beta * log_p(x, z)

    def gradient(x, q, z, beta):
        z = z.detach().requires_grad_()
        return torch.autograd.grad(log_f(x, q, z, beta).sum(), z)[0]

    def hmc(x, q, z, beta, step):
        momentum = torch.randn_like(z)
        with torch.no_grad():
            before = momentum.square().sum(-1) / 2 - log_f(x, q, z, beta)
        new, velocity = z, momentum + step / 2 * gradient(x, q, z, beta)
        for i in range(L):
            new = new + step * velocity
            size = step if i < L - 1 else step / 2
            velocity = velocity + size * gradient(x, q, new, beta)
        with torch.no_grad():
            after = velocity.square().sum(-1) / 2 - log_f(x, q, new, beta)
        accepted = torch.rand_like(before) < torch.exp(before - after)
        return torch.where(accepted[..., None], new, z), accepted.float().mean()

    def update():
        x = torch.bernoulli(data)
        q = encode(x)
        with torch.no_grad():
            fixed = torch.distributions.Normal(q.loc.detach(), q.scale.detach())
            z = fixed.sample((K,))
            log_weight = torch.zeros(K, BATCH)
        for t in range(T):
            with torch.no_grad():
                ratio = log_p(x, z) - fixed.log_prob(z).sum(-1)
                log_weight = log_weight + (betas[t + 1] - betas[t]) * ratio
            z, accepted = hmc(x, fixed, z, betas[t + 1], step_sizes[t])
            step_sizes[t] *= 1.002 if accepted > 0.6 else 0.998
        weights = torch.softmax(log_weight, dim=0)
        theta = -(weights * log_p(x, z)).sum(0).mean()
        sample = q.rsample()
        decoder.requires_grad_(False)
        phi = -(log_p(x, sample) - q.log_prob(sample).sum(-1)).mean()
        decoder.requires_grad_(True)
        optimizer.zero_grad()
        (theta + phi).backward()
        optimizer.step()

    return best_seconds(update, repeats=repeats)


def blackjax_seconds(K: int, T: int, L: int, repeats: int = 3) -> float:
    """Time Algorithm 1 with BlackJAX's HMC, started anew at each temperature."""
    import blackjax

    model, proposal = networks()
    betas, step_sizes = jnp.linspace(0, 1, T + 1), jnp.full(T, 0.02)
    mass = jnp.ones(50)

    def chain(key, q, log_joint):
        def move(carry, item):
            z, log_weight = carry
            key, before, beta, size = item
            log_weight += (beta - before) * (log_joint(z) - q.log_prob(z))

            def log_f(z):
                return (1 - beta) * q.log_prob(z) + beta * log_joint(z)

            kernel = blackjax.hmc(log_f, size, mass, L)
            state, info = kernel.step(key, kernel.init(z))
            return (state.position, log_weight), info.acceptance_rate

        key_start, key_moves = jax.random.split(key)
        items = (jax.random.split(key_moves, T), betas[:-1], betas[1:], step_sizes)
        (z, log_weight), rates = jax.lax.scan(move, (q.sample(key_start), jnp.zeros(())), items)
        return z, log_weight, rates

    def example(key, networks, x):
        model, proposal = networks
        key_chains, key_phi = jax.random.split(key)
        fixed_model, fixed_q = jax.lax.stop_gradient((model, proposal(x)))

        def log_joint(model, z):
            return model.log_prior(z) + model.log_likelihood(x, z)

        run = jax.vmap(lambda key: chain(key, fixed_q, lambda z: log_joint(fixed_model, z)))
        z, log_weights, rates = run(jax.random.split(key_chains, K))
        weights = jax.nn.softmax(log_weights)
        theta = -jnp.sum(weights * jax.vmap(lambda z: log_joint(model, z))(z))
        q = proposal(x)
        sample = q.sample(key_phi)
        return theta - (log_joint(fixed_model, sample) - q.log_prob(sample)), rates

    return _optax_seconds(example, (model, proposal), repeats)


def numpyro_seconds(K: int, T: int, L: int, repeats: int = 3) -> float:
    """Time NumPyro's AutoSemiDAIS with K particles of T x L leapfrog steps.

    It is another estimator of the same cost in steps: no accept and reject, one step for each
    temperature, and a gradient that goes back through the whole chain.
    """
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoSemiDAIS

    model, proposal = networks()
    data = jnp.asarray(pictures()[:BATCH], jnp.float32) / 255

    def with_params(name: str, tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        params = [numpyro.param(f"{name}{i}", leaf) for i, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, params)

    def joint(x):
        decoder = with_params("decoder", model.decoder)
        with numpyro.plate("data", BATCH):
            z = numpyro.sample("z", dist.Normal().expand([50]).to_event(1))
            bits = dist.Bernoulli(logits=jax.vmap(decoder)(z)).to_event(1)
            numpyro.sample("x", bits, obs=x)

    def guide(x):
        q = jax.vmap(with_params("encoder", proposal))(x)
        with numpyro.plate("data", BATCH):
            numpyro.sample("z", dist.Normal(q.loc, q.scale).to_event(1))

    annealed = AutoSemiDAIS(joint, joint, None, guide, K=T * L, use_global_dais_params=True)
    loss = Trace_ELBO(num_particles=K, vectorize_particles=True)
    svi = SVI(joint, annealed, optax.adam(1e-4), loss)
    bits = jax.random.bernoulli(jax.random.key(0), data).astype(jnp.float32)
    held = [svi.init(jax.random.key(1), bits)]
    update = jax.jit(svi.update)

    def call() -> Any:
        held[0], value = update(held[0], bits)
        return value

    return best_seconds(call, repeats=repeats)


def optax_seconds(method: str, K: int, repeats: int = 5) -> float:
    """Time a plain loop of `jax.jit` and Optax: one call an update, no tiles, no sharding."""
    estimator = baseline(method, K)

    def example(key, networks, x):
        losses, metrics = estimator.estimate(key, *networks, x, ())
        return losses.theta + losses.phi, metrics.bound

    return _optax_seconds(example, networks(), repeats)


def _optax_seconds(example: Any, start: Any, repeats: int) -> float:
    optimizer = optax.adam(1e-4)
    data = jnp.asarray(pictures()[:BATCH], jnp.float32) / 255

    @jax.jit
    def update(key, networks, state):
        key_bits, key = jax.random.split(key)
        x = jax.random.bernoulli(key_bits, data).astype(jnp.float32)

        def loss(networks):
            losses, aux = jax.vmap(example, (0, None, 0))(jax.random.split(key, BATCH), networks, x)
            return losses.mean(), aux

        (_, aux), gradients = jax.value_and_grad(loss, has_aux=True)(networks)
        changes, state = optimizer.update(gradients, state)
        return optax.apply_updates(networks, changes), state, jax.tree.map(jnp.mean, aux)

    held = [start, optimizer.init(start)]

    def call() -> Any:
        held[0], held[1], aux = update(jax.random.key(0), *held)
        return aux

    return best_seconds(call, repeats=repeats)


def is_installed(name: str) -> bool:
    """Say whether a peer can be measured here."""
    return importlib.util.find_spec(name) is not None
