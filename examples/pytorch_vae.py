"""A VAE that was trained in plain PyTorch: what is its log p(x), and what does annealing add?

The usual number is a bound by importance sampling. It can be far too low, and does not say so; the
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

# Elsewhere: a VAE as it is often written, with pictures, a batch norm and a sigmoid at the end.
encoder = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    *(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten()),
    nn.Linear(16 * 4 * 4, 2 * 16),  # means, and logarithms of variances
)
decoder = nn.Sequential(
    *(nn.Linear(16, 16 * 4 * 4), nn.ELU(), nn.Unflatten(1, (16, 4, 4))),
    *(nn.ConvTranspose2d(16, 16, 4, stride=2, padding=1), nn.BatchNorm2d(16), nn.ELU()),
    *(nn.Conv2d(16, 1, 3, padding=1), nn.Flatten(), nn.Sigmoid()),
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
        sampler=aisle.Sampler(num_chains=4, num_temperatures=150),
        certificate=aisle.Certificate(num_examples=50),
        importance_samples=100,
    )


before = evaluated(model, proposal)
print("PyTorch's VAE, bound by 100 importance samples:", before.importance.bound)
print("PyTorch's VAE, by annealing:", before)


# And on, from PyTorch's weights: by the same objective, and by one chain of annealing per example.
def trained(method):
    return aisle.fit(
        *(model, proposal, train),
        method=method,
        optimizer=aisle.Adam(1e-3),
        num_updates=800,
        batch_size=50,
        held_out=valid,
    )


for method in (aisle.VAE(), aisle.AIS(num_samples=1, num_temperatures=11)):
    fitted = trained(method)
    after = evaluated(fitted.model, fitted.proposal)
    gain = after.log_p - before.log_p
    error = gain.std() / len(gain) ** 0.5
    print(f"after 800 updates more by {type(method).__name__}:", after)
    print(f"  gain on the same examples: {gain.mean():.2f} +- {error:.2f} nats")

# Back: PyTorch has the new weights.
decoder.load_state_dict(aisle.to_torch(fitted.model))
encoder.load_state_dict(aisle.to_torch(fitted.proposal))
