"""The choice between runs by validation data: one run for each candidate, one test in the end."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aisle.errors import InputError, check_count
from aisle.evaluation import Comparison, LogLikelihood
from aisle.evaluation.comparing import compare
from aisle.models import WHOLE
from aisle.runs.evaluating import evaluate
from aisle.runs.opening import Run
from aisle.runs.options import EvaluateConfig, LikelihoodName, SamplerOptions, TrainConfig
from aisle.runs.training import completed


class Candidate(NamedTuple):
    """A choice: the number of latents, and the likelihood."""

    num_latents: int
    likelihood: LikelihoodName

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.likelihood}-{self.num_latents}"


def candidates(
    num_latents: Sequence[int], likelihoods: Sequence[LikelihoodName]
) -> list[Candidate]:
    """Return all choices; refuse likelihoods whose log p(x) cannot be compared."""
    for number in num_latents:
        check_count("num_latents", number)
    if "auto" in likelihoods and len(likelihoods) > 1:
        raise InputError(
            f"is {','.join(likelihoods)}: auto stands alone; name the families to choose from",
            argument="likelihood",
        )
    if len({name in WHOLE for name in likelihoods}) > 1:
        raise InputError(
            f"is {','.join(likelihoods)}: probabilities of whole numbers and densities of real "
            "ones cannot be compared; give families of one kind",
            argument="likelihood",
        )
    pairs = itertools.product(num_latents, likelihoods)
    return list(dict.fromkeys(Candidate(number, name) for number, name in pairs))


def select(
    config: TrainConfig, choices: Sequence[Candidate], sampler: SamplerOptions, out: Path
) -> tuple[Comparison, LogLikelihood]:
    """Train and validate each candidate, as far as that is not done, and test the best one.

    Return log p(x) of validation examples by all of them, and of test examples by that one alone.
    """
    if config.observations.num_valid == 0:
        raise InputError("is 0: a choice needs validation data", argument="num_valid")
    found = {choice.name: _validated(config, choice, sampler, out) for choice in choices}
    comparison = compare({name: result for name, (_, result) in found.items()})
    run, _ = found[comparison.best]
    test, _ = evaluate(run, EvaluateConfig(split="test", sampler=sampler))
    return comparison, test


def _validated(
    config: TrainConfig, choice: Candidate, sampler: SamplerOptions, out: Path
) -> tuple[Run, LogLikelihood]:
    model = dataclasses.replace(
        config.model, num_latents=choice.num_latents, likelihood=choice.likelihood
    )
    run = completed(dataclasses.replace(config, model=model), out / choice.name)
    return run, evaluate(run, EvaluateConfig(split="valid", sampler=sampler))[0]
