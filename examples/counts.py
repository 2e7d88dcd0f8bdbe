"""Model counts by a Poisson likelihood of NumPyro's, with log-rates that depend on latents.

The counts are simulated, so that the model that made them shows how good a trained one can be.
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
        return self._counts(z).sample(key)

    def mean_observation(self, z):
        return self._counts(z).mean

    def _counts(self, z):  # or dist.NegativeBinomial2, for counts that vary more
        return dist.Poisson(jnp.exp(self.log_rates(z)))


class Encoder(eqx.Module):
    network: eqx.nn.MLP

    def __call__(self, x):
        loc, log_scale = jnp.split(self.network(jnp.log1p(x)), 2)  # logs, as counts differ widely
        return aisle.DiagonalNormal(loc, jnp.exp(log_scale))


# The truth: counts of 20 kinds, which two latents drive.
truth = Counts(eqx.nn.Linear(2, 20, key=jax.random.key(0)))
train, test = np.split(np.asarray(aisle.sample(truth, 1200, seed=1)), [1000])

# Another model of the same kind, trained without a look at the truth.
model = Counts(eqx.nn.Linear(2, 20, key=jax.random.key(2)))
proposal = Encoder(eqx.nn.MLP(20, 4, 32, 2, jnp.tanh, key=jax.random.key(3)))
method = aisle.AIS(num_samples=2, num_temperatures=5)
fitted = aisle.fit(
    model, proposal, train, method=method, optimizer=aisle.Adam(0.01), num_updates=1500
)

# Both on the same held-out counts. The truth has no encoder: its chains start at the prior.
settings = {
    "sampler": aisle.Sampler(num_chains=4, num_temperatures=200),
    "certificate": aisle.Certificate(num_examples=50),
}
found = aisle.log_likelihood(fitted.model, fitted.proposal, test, **settings)
best = aisle.log_likelihood(truth, None, test, **settings)
print("trained:", found)
print("truth:  ", best)

# Differences of the same examples vary less than the examples do.
differences = found.log_p - best.log_p
error = differences.std(ddof=1) / len(differences) ** 0.5
print(f"trained less truth: {differences.mean():.3f} +- {error:.3f} nats")
