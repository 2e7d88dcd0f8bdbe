"""Learning rates as functions of the number of updates made.

Each takes the first rate, the updates of a phase and the updates of an epoch, and returns what
Optax calls a schedule.
"""

import optax


def iwae_study(rate: float, num_updates: int, updates_per_epoch: int) -> optax.Schedule:
    """Rate x 10^(-i/7) for 3^i epochs, i = 0..7: 3,280 epochs in all (Burda et al., 2016).

    Example:
        >>> rate = aisle.rates.iwae_study(0.001, num_updates=3280, updates_per_epoch=1)
        >>> [round(float(rate(update)), 6) for update in (0, 1, 4)]
        [0.001, 0.00072, 0.000518]
    """
    del num_updates
    ends = [(3 ** (i + 1) - 1) // 2 * updates_per_epoch for i in range(7)]
    boundaries: dict[int, float] = dict.fromkeys(ends, 10 ** (-1 / 7))
    return optax.piecewise_constant_schedule(rate, boundaries)


def cosine(rate: float, num_updates: int, updates_per_epoch: int) -> optax.Schedule:
    """From the rate to zero at the last update, along a cosine.

    Example:
        >>> rate = aisle.rates.cosine(0.01, num_updates=100, updates_per_epoch=10)
        >>> [round(float(rate(update)), 4) for update in (0, 50, 100)]
        [0.01, 0.005, 0.0]
    """
    del updates_per_epoch
    return optax.cosine_decay_schedule(rate, max(1, num_updates))


def constant(rate: float, num_updates: int, updates_per_epoch: int) -> optax.Schedule:
    """The same rate throughout.

    Example:
        >>> rate = aisle.rates.constant(0.01, num_updates=100, updates_per_epoch=10)
        >>> round(float(rate(50)), 4)
        0.01
    """
    del num_updates, updates_per_epoch
    return optax.constant_schedule(rate)
