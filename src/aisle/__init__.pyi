from .annealing import (
    Annealed as Annealed,
    AnnealInfo as AnnealInfo,
    anneal as anneal,
    anneal_reverse as anneal_reverse,
    effective_sample_size as effective_sample_size,
    log_mean_exp as log_mean_exp,
    normalised_weights as normalised_weights,
)
from .errors import InputError as InputError, TrainingError as TrainingError
from .evaluation import (
    LogLikelihood as LogLikelihood,
    log_likelihood as log_likelihood,
    sample_posterior as sample_posterior,
)
from .experiments.training import (
    Run as Run,
    load_weights as load_weights,
    open_run as open_run,
)
from .learning import Fitted as Fitted, fit as fit
from .models import (
    DiagonalNormal as DiagonalNormal,
    LinearGaussian as LinearGaussian,
    PriorDistribution as PriorDistribution,
    PriorProposal as PriorProposal,
    one_layer as one_layer,
    two_layer as two_layer,
)
