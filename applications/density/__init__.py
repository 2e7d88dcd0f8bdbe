"""The benchmark of binary densities: latent-variable models against what one would take instead."""
