"""The demonstration: four methods on the embedded digits, with everything else the same."""

from aisle.experiments.cells import Cell
from aisle.experiments.options import (
    EvaluateConfig,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
    SamplerOptions,
    TrainConfig,
)

# Of a digit.
SHAPE = (8, 8)

METHODS = {
    "vae": MethodOptions("vae", num_samples=1),
    "dreg": MethodOptions("dreg", num_samples=5),
    "mh-hmc": MethodOptions("mh-hmc", num_samples=5, num_temperatures=11),
    "ais": MethodOptions("ais", num_samples=5, num_temperatures=11),
}


def cells(num_epochs: int, seed: int) -> list[Cell]:
    """Return a cell for each method; nothing else differs."""
    return [
        Cell(
            name,
            TrainConfig(
                "digits",
                num_epochs,
                method,
                ModelOptions(num_latents=20, num_hidden=100),
                optimizer=OptimizerOptions(
                    batch_size=100, learning_rate=3e-3, lr_schedule="cosine"
                ),
                run=RunOptions(seed=seed, validate_every=10),
            ),
            _evaluation(seed),
        )
        for name, method in METHODS.items()
    ]


def _evaluation(seed: int) -> EvaluateConfig:
    """Say how the models are compared, on all held-out digits."""
    sampler = SamplerOptions(num_chains=8, num_temperatures=200, bdmc_examples=100, seed=seed)
    return EvaluateConfig(sampler=sampler)
