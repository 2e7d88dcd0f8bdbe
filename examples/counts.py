"""Model counts by a Poisson likelihood of NumPyro's, with log-rates that depend on latents.

The counts are simulated, so that the model that made them shows how good a trained one can be. Give
counts of your own as np.float32: uint8 would be read as value / 255.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import aisle


class Counts(eqx.Module):  # log-rates are linear in z; any network may take their place
    log_rates: eqx.nn.Linear

    def log_prior(self, z):
        return jnp.sum(dist.Normal().log_prob(z))

    def log_likelihood(self, x, z):
        return jnp.sum(self._counts(z).log_prob(x))

    def sample_prior(self, key):
        return jax.random.normal(key, (self.log_rates.in_features,))

    def sample_observation(self, key, z):
        return self._counts(z).sample(key).astype(float)

    def mean_observation(self, z):
        return self._counts(z).mean

    def _counts(self, z):  # or dist.NegativeBinomial2, for counts that vary more
        return dist.Poisson(jnp.exp(self.log_rates(z)))


class Encoder(eqx.Module):
    network: eqx.nn.MLP

    def __call__(self, x):
        loc, log_scale = jnp.split(self.network(jnp.log1p(x)), 2)  # logs, as counts differ widely
        return aisle.DiagonalNormal(loc, jnp.exp(log_scale))


def simulate(model, key):
    key_z, key_x = jax.random.split(key)
    return model.sample_observation(key_x, model.sample_prior(key_z))


# The truth: counts of 20 kinds, which two latents drive.
truth = Counts(eqx.nn.Linear(2, 20, key=jax.random.key(0)))
keys = jax.random.split(jax.random.key(1), 1200)
counts = np.asarray(jax.vmap(simulate, in_axes=(None, 0))(truth, keys))
train, test = counts[:1000], counts[1000:]

# Another model of the same kind, trained without a look at the truth.
model = Counts(eqx.nn.Linear(2, 20, key=jax.random.key(2)))
proposal = Encoder(eqx.nn.MLP(20, 4, 32, 2, jnp.tanh, key=jax.random.key(3)))
plan = {"method": "ais", "num_samples": 2, "num_temperatures": 5, "num_epochs": 60}
steps = {"batch_size": 40, "learning_rate": 0.01, "lr_schedule": "cosine"}
fitted = aisle.fit(model, proposal, train, **plan, **steps)

# Both on the same held-out counts. The truth has no encoder: its chains start at the prior.
settings = {"num_chains": 4, "num_temperatures": 200, "bdmc_examples": 50}
found = aisle.log_likelihood(fitted.model, fitted.proposal, test, **settings)
best = aisle.log_likelihood(truth, None, test, **settings)
for name, result in {"trained": found, "truth": best}.items():
    (mean, error, _), gap = result.estimate, result.bdmc.gap
    print(f"{name}, stochastic lower bound of log p(x): {mean:.3f} +- {error:.3f} nats")
    print(f"{name}, gap of bidirectional Monte Carlo: {gap.mean:.3f} +- {gap.standard_error:.3f}")
difference = found.log_p - best.log_p
error = difference.std(ddof=1) / len(difference) ** 0.5
print(f"trained less truth, example by example: {difference.mean():.3f} +- {error:.3f} nats")
