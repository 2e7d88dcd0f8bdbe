from . import data as data
from .annealing import (
    HMC as HMC,
    Annealed as Annealed,
    AnnealInfo as AnnealInfo,
    Kernel as Kernel,
    Ladder as Ladder,
    MoveInfo as MoveInfo,
    Transition as Transition,
    anneal as anneal,
    anneal_reverse as anneal_reverse,
    anneal_with_states as anneal_with_states,
    effective_sample_size as effective_sample_size,
    log_mean_exp as log_mean_exp,
    normalised_weights as normalised_weights,
    schedules as schedules,
)
from .context import Context as Context
from .data import (
    Column as Column,
    Split as Split,
    Table as Table,
    View as View,
    read_table as read_table,
)
from .errors import InputError as InputError, TrainingError as TrainingError
from .estimator import LatentDensity as LatentDensity
from .evaluation import (
    Certificate as Certificate,
    Comparison as Comparison,
    ImportanceSampler as ImportanceSampler,
    LogLikelihood as LogLikelihood,
    Sampler as Sampler,
    compare as compare,
    impute as impute,
    log_likelihood as log_likelihood,
    sample_posterior as sample_posterior,
)
from .learning import (
    AIS as AIS,
    IWAE as IWAE,
    MHHMC as MHHMC,
    VAE as VAE,
    Adam as Adam,
    DReG as DReG,
    EarlyStopping as EarlyStopping,
    Look as Look,
    Losses as Losses,
    Method as Method,
    Metrics as Metrics,
    Muon as Muon,
    Phase as Phase,
    Recipe as Recipe,
    Validation as Validation,
    rates as rates,
)
from .models import (
    Bernoulli as Bernoulli,
    Beta as Beta,
    Categorical as Categorical,
    Columns as Columns,
    DiagonalNormal as DiagonalNormal,
    Gaussian as Gaussian,
    Likelihood as Likelihood,
    LinearGaussian as LinearGaussian,
    LogitNormal as LogitNormal,
    NegativeBinomial as NegativeBinomial,
    Poisson as Poisson,
    PriorDistribution as PriorDistribution,
    PriorProposal as PriorProposal,
    StudentT as StudentT,
    ZeroInflatedNegativeBinomial as ZeroInflatedNegativeBinomial,
    convolutional_model as convolutional_model,
    encode as encode,
    from_flax as from_flax,
    from_numpyro as from_numpyro,
    from_torch as from_torch,
    mlp_model as mlp_model,
    one_layer as one_layer,
    reconstruct as reconstruct,
    sample as sample,
    to_torch as to_torch,
    transposed_kernel as transposed_kernel,
    two_layer as two_layer,
)
from .runs.fitting import Fitted as Fitted, fit as fit
from .runs.opening import Run as Run, load as load, open_run as open_run
from .runs.recorder import RunFolder as RunFolder
from .types import (
    Distribution as Distribution,
    Model as Model,
    Proposal as Proposal,
)
