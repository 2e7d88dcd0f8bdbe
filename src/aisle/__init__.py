"""Maximum likelihood for latent-variable models by annealed importance sampling.

The public names stand in `__init__.pyi`. They are imported on first use, so that the command line
answers `--help` without starting JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
