"""`LatentDensity`: a deep latent-variable model as an estimator of scikit-learn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    DensityMixin,
    TransformerMixin,
)
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
)

from aisle.errors import InputError, check, check_count, check_positive
from aisle.estimator import columns, saving
from aisle.estimator.starting import Form
from aisle.estimator.training import Settings, examples_of, train
from aisle.evaluation import Certificate, LogLikelihood, Sampler, impute, log_likelihood
from aisle.evaluation.rows import RowScores, encode_rows, score_rows
from aisle.learning.methods import AIS, IWAE
from aisle.learning.protocol import Method, check_method
from aisle.models import sample

_NUM_LATENTS = 10
# Small networks for small tables: units of two hidden layers, below so many rows.
_HIDDEN = ((500, 32), (5_000, 64), (20_000, 128))
_METHODS = {"ais": AIS(num_samples=1), "iwae": IWAE(), "vae": None}


class LatentDensity(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):
    """Density of a table by a latent-variable model, trained by annealed importance sampling.

    Real columns start as factor analysis, with the number of factors that is best for held-out
    rows. Networks then learn what is not linear, for as long as held-out rows gain: in turns of
    three for fewer than 1,000 rows. In the end all rows train for that long.

    Rows are sorted first, so that a fit does not depend on their order, and a row of weight 2 is
    the same as two rows. The numbers of a row depend on its content and not on what else is scored.
    NaN is a missing value, and log p(x) is that of what was observed.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(6, 2))
        >>> density = aisle.LatentDensity(num_latents=1, hidden=(4,), random_state=0).fit(x)
        >>> density.score_samples(x).shape, density.transform(x).shape
        ((6,), (6, 1))

    Args:
        num_latents: dimensions of z; by default 10, and 20 or 40 for real columns with more factors
            than that.
        likelihood: of the columns. "auto" takes what the columns of a frame look like, see
            `aisle.read_table`, and real values in an array. Or the name of a family for all, such
            as "bernoulli", or the kinds of a frame's columns, {"age": "real"}.
        hidden: units of each hidden layer of the decoder; by default (200, 200), and less for fewer
            than 20,000 rows.
        method: "ais", "iwae", "vae", or an `aisle.Method`. A VAE comes first in any case.
        max_updates: of the VAE at the most, and half as many by the method; by default 100 passes
            over the data, but at least 4,000 and at most 20,000.
        learning_rate: Adam's for the VAE, and three tenths of it for the method.
        num_chains: annealed chains of a row's score.
        num_temperatures: of these chains.
        embedding: what `transform` returns: means by the "encoder", or posterior means by
            "annealing".
        verbose: whether to show a progress bar.
        random_state: seed, or generator; None for another fit each time.

    Attributes:
        model_: the trained model, for all other functions of aisle.
        proposal_: its encoder.
        columns_: what the columns of a frame were taken for, or None.
        num_updates_: that were made by the VAE, and by the method.
    """

    def __init__(
        self,
        num_latents: int | None = None,
        *,
        likelihood: str | Mapping[str, str] = "auto",
        hidden: Sequence[int] | None = None,
        method: str | Method = "ais",
        max_updates: int | None = None,
        learning_rate: float = 1e-3,
        num_chains: int = 8,
        num_temperatures: int = 20,
        embedding: Literal["encoder", "annealing"] = "encoder",
        verbose: bool = False,
        random_state: Any = None,
    ):
        self.num_latents = num_latents
        self.likelihood = likelihood
        self.hidden = hidden
        self.method = method
        self.max_updates = max_updates
        self.learning_rate = learning_rate
        self.num_chains = num_chains
        self.num_temperatures = num_temperatures
        self.embedding = embedding
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "LatentDensity":
        """Train on the rows of X; `sample_weight` says how much each counts."""
        del y
        settings = self._settings()
        values, found, families = columns.learn(self, X, self.likelihood)
        weights = _check_sample_weight(sample_weight, values, ensure_non_negative=True)
        if not weights.sum() > 0:
            raise InputError("is 0 for all rows: give some a weight", argument="sample_weight")
        empty = np.flatnonzero(np.isnan(values).all(axis=0))
        if len(empty):
            raise InputError(f"has no value in column {empty[0]}: drop it", argument="X")
        columns.check_precision(values)
        rows = columns.sorted_rows(values, np.asarray(weights, np.float64))
        form = Form(
            families,
            columns.levels_of(families, values, found),
            int(self.num_latents or _NUM_LATENTS),
            self._hidden(len(rows.values)),
        )
        trained = train(form, rows, settings)
        self.model_, self.proposal_ = jax.tree.map(jnp.asarray, trained[:2])
        self.columns_, self.num_updates_ = found, trained.num_updates
        self._form, self._ladder = trained.form, trained.ladder
        self._library = type(X).__module__.partition(".")[0]
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of each row in nats, a stochastic lower bound."""
        return self.score_rows(X).log_p

    def score(self, X: Any, y: Any = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the mean of log p(x), as `GaussianMixture` does; `KernelDensity` has the sum."""
        del y
        return float(np.mean(self.score_samples(X)))

    def score_rows(self, X: Any) -> RowScores:
        """Return log p(x) of each row with its Monte Carlo error, effective chains and latents."""
        rows = examples_of(self._values(X))
        networks = (self.model_, self.proposal_)
        return score_rows(*networks, rows, self._ladder, num_chains=self.num_chains)

    def transform(self, X: Any) -> np.ndarray:
        """Return the mean of z of each row, by the encoder or by annealing."""
        if self.embedding == "annealing":
            return self.score_rows(X).latents
        rows = examples_of(self._values(X))
        return encode_rows(self.proposal_, rows)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return E[x|z] for rows of latents; of categories, the mean of their codes."""
        check_is_fitted(self)
        latents = jnp.asarray(check_array(X, dtype="float32"))
        if latents.shape[1] != self._n_features_out:
            raise InputError(
                f"has {latents.shape[1]} columns, but there are {self._n_features_out} latents: "
                "give rows as `transform` returns them",
                argument="X",
            )
        return np.asarray(jax.vmap(self.model_.mean_observation)(latents), np.float64)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows from the model; a frame where it was fitted to one."""
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        drawn = np.asarray(sample(self.model_, n_samples, seed=_seed(random_state)), np.float64)
        if self.columns_ is None:
            return drawn
        return columns.as_frame(drawn, self.columns_, self._library)

    def impute(
        self, X: Any, *, num_draws: int = 50, average: bool = True, random_state: Any = None
    ) -> Any:
        """Return X with its missing values filled in.

        The mean over draws fills numbers and the most frequent draw fills bits and categories.
        Without `average`, all completed tables are returned, as numbers, with the draws along the
        second axis.
        """
        values, seed = self._values(X), _seed(random_state)
        options = {"num_draws": num_draws, "seed": seed, "show_progress": bool(self.verbose)}
        drawn = impute(self.model_, self.proposal_, values, **options)
        drawn = np.asarray(drawn, np.float64)
        if not average:
            return drawn
        filled = drawn.mean(axis=1)
        for i, family in enumerate(self._form.families):
            if family in ("bernoulli", "categorical"):
                filled[:, i] = [np.bincount(own.astype(int)).argmax() for own in drawn[:, :, i]]
        filled = np.where(np.isnan(values), filled, values)
        if self.columns_ is None or not columns.is_frame(X):
            return filled
        return columns.as_frame(filled, self.columns_, self._library, X)

    def certify(
        self,
        X: Any,
        *,
        sampler: Sampler | None = None,
        certificate: Certificate | None = None,
    ) -> LogLikelihood:
        """Return the log-likelihood with its standard error and gap; see `aisle.log_likelihood`."""
        values = self._values(X)
        return log_likelihood(
            self.model_,
            self.proposal_,
            values,
            sampler=sampler,
            certificate=certificate,
            show_progress=bool(self.verbose),
        )

    def save(self, path: str | Path) -> None:
        """Write the estimator to a .safetensors file, without pickle."""
        check_is_fitted(self)
        saving.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "LatentDensity":
        """Return an estimator that `save` wrote."""
        return saving.load(cls, Path(path))

    @property
    def _n_features_out(self) -> int:
        return self._form.num_latents

    def _values(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        values = columns.numbers(self, X, self.columns_)
        is_wrong = ~(self.model_.likelihood.is_supported(values) | np.isnan(values))
        if is_wrong.any():
            raise InputError(
                f"has the value {values[is_wrong][0]:g} in column "
                f"{np.argmax(is_wrong.any(axis=0))}, which the model cannot have made: it is of "
                f"{self.model_.likelihood.support}",
                argument="X",
            )
        return values

    def _settings(self) -> Settings:
        for name in ("num_latents", "max_updates"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("num_chains", self.num_chains)
        check_count("num_temperatures", self.num_temperatures, 2)
        check_positive("learning_rate", self.learning_rate)
        check(
            self.embedding in ("encoder", "annealing"),
            "embedding",
            self.embedding,
            "'encoder' or 'annealing'",
        )
        method = self.method
        if isinstance(method, str):
            names = ", ".join(_METHODS)
            check(method in _METHODS, "method", method, f"one of {names}, or an aisle.Method")
            method = _METHODS[method]
        else:
            check_method(method)
        return Settings(
            method,
            float(self.learning_rate),
            self.max_updates,
            int(self.num_chains),
            int(self.num_temperatures),
            _seed(self.random_state),
            bool(self.verbose),
            self.num_latents is None,
        )

    def _hidden(self, num_rows: int) -> tuple[int, ...]:
        if self.hidden is None:
            units = next((units for most, units in _HIDDEN if num_rows < most), 200)
            return (units, units)
        is_sequence = isinstance(self.hidden, Sequence | np.ndarray)
        check(is_sequence, "hidden", self.hidden, "units of each layer, as in (200, 200)")
        for number in self.hidden:
            check_count("hidden", number)
        return tuple(map(int, self.hidden))


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))
