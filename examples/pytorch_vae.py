"""A VAE that was trained in plain PyTorch: what is its log p(x), and what does annealing add?

The usual number is a bound by importance sampling. It may be far too low, and does not say so; the
one by annealing comes with a certificate. Then training goes on in JAX, from the same weights.
Weights are chosen by validation data, and all numbers are of test data.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import aisle

torch.manual_seed(0)
digits = np.float32(load_digits().data > 7)  # 1,797 digits as 64 bits each
train, valid, test = np.split(digits, [1300, 1500])

# Elsewhere: a VAE as it is often written, with a batch norm and a sigmoid at the end.
encoder = nn.Sequential(
    *(nn.Linear(64, 100), nn.BatchNorm1d(100), nn.ReLU()),
    nn.Linear(100, 2 * 16),  # means, and logarithms of variances
)
decoder = nn.Sequential(
    *(nn.Linear(16, 100), nn.BatchNorm1d(100), nn.ReLU()),
    *(nn.Linear(100, 64), nn.Sigmoid()),
)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
for _ in range(30):
    for batch in torch.tensor(train)[torch.randperm(len(train))].split(50):
        mean, log_variance = encoder(batch).chunk(2, dim=1)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        fit = nn.functional.binary_cross_entropy(decoder(z), batch, reduction="sum")
        divergence = (mean**2 + log_variance.exp() - log_variance - 1).sum() / 2
        loss = (fit + divergence) / len(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# Here: the same two modules, in evaluation mode, as a model and a proposal.
model, proposal = aisle.from_torch(decoder.eval(), "bernoulli", encoder.eval())


def evaluated(model, proposal):
    return aisle.log_likelihood(
        model,
        proposal,
        test,
        sampler=aisle.Sampler(num_chains=4, num_temperatures=100),
        certificate=aisle.Certificate(num_examples=20),
        importance_samples=100,
    )


before = evaluated(model, proposal)
print("log p(x) of PyTorch's VAE, in nats")
print("  bound by 100 importance samples:", before.importance.bound)
print("  by annealing:", before)
print("  difference on the same examples:", before.importance.ais_difference)

# And on, from PyTorch's weights: by the same objective, and by one chain of annealing per example.
results = {}
for method in (aisle.VAE(), aisle.AIS(num_samples=1, num_temperatures=11)):
    fitted = aisle.fit(
        *(model, proposal, train),
        method=method,
        optimizer=aisle.Adam(1e-3),
        num_updates=500,
        batch_size=50,
        held_out=valid,
    )
    name = type(method).__name__
    results[name] = evaluated(fitted.model, fitted.proposal)
    print(f"after 500 updates more by {name}:", results[name])

gain = results["AIS"].log_p - results["VAE"].log_p
error = gain.std() / len(gain) ** 0.5
print(f"AIS against VAE on the same examples: {gain.mean():.2f} +- {error:.2f}")

# Back: PyTorch has the new weights.
decoder.load_state_dict(aisle.to_torch(fitted.model))
encoder.load_state_dict(aisle.to_torch(fitted.proposal))
