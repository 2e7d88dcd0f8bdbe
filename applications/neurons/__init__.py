"""Words of spiking neurons: latent causes against independent and pairwise models."""
