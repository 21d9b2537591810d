"""How often intervals of what remains hold the truth, in worlds of which it is known."""

import numpy as np

from ruler.stats.scale import relabel, share_of_members, share_of_original

TRUTHS = (0.0, 0.5, 1.0)
SIZES = (1, 2, 3, 5, 10, 20, 50, 200), (20, 40, 100, 400)
EFFECT = 5.0
"""Standard deviations between scores of records that were trained on and of records that were not."""

DRAWN = {
    "normal": lambda rng, size: rng.normal(size=size),
    "t3": lambda rng, size: rng.standard_t(3, size=size) / np.sqrt(3),
    "skew": lambda rng, size: rng.exponential(size=size) - 1,
}
"""Scores of records that were never trained on, with mean 0 and variance 1."""


PEOPLE = ((200, 5, 5), (10,) * 30)
"""Records of each person, forget and held out, for people of unequal size."""

ALIKE = 0.3
"""Part of the variance that a person's records have in common."""


def count_covered(n, m, kind, *, n_runs, seed=0, n_members=500, n_permutations=399, alpha=0.05):
    """How often limits hold the truth, and the median half-width, by scale and truth.

    Returns:
        (coverage of the interval, of the one-sided lower limit, of the upper one, half-width).
    """
    rng = np.random.default_rng([seed, n, m, sorted(DRAWN).index(kind)])

    def draw():
        own, other = DRAWN[kind](rng, (2, n + m))
        return own, 0.5 * own + np.sqrt(0.75) * other, DRAWN[kind](rng, n_members)

    return _count(draw, n, n_runs, n_permutations, alpha)


def count_covered_of_groups(sizes, others, *, n_runs, seed=0, alike=ALIKE, n_permutations=399, alpha=0.05):
    """As `count_covered`, for means of people with these numbers of records."""
    rng = np.random.default_rng(seed)
    every = np.concatenate([sizes, others])

    def draw():
        common, first, second = rng.normal(size=(3, len(every)))
        own, before = (np.sqrt(alike) * common + np.sqrt((1 - alike) / every) * part for part in (first, second))
        return own, before, np.sqrt(alike + (1 - alike) / 10) * rng.normal(size=100)

    return _count(draw, len(sizes), n_runs, n_permutations, alpha)


def _count(draw, n, n_runs, n_permutations, alpha):
    held = {(scale, truth): [] for scale in ("original", "members") for truth in TRUTHS}
    for run in range(n_runs):
        own, before, members = draw()
        trace = EFFECT * (np.arange(len(own)) < n)
        before, members = before + trace, members + EFFECT
        now = {truth: own + truth * trace for truth in TRUTHS}
        found = relabel(np.array([*now.values(), before]), n, n_permutations=n_permutations, seed=run)
        for place, (truth, scores) in enumerate(now.items()):
            columns = place, len(TRUTHS)
            held["original", truth].append(
                share_of_original(scores, before, n, alpha=alpha, found=found, columns=columns)
            )
            held["members", truth].append(
                share_of_members(scores[:n], scores[n:], members, alpha=alpha, found=found, column=place)
            )
    return {
        (scale, truth): (
            float(np.mean([one.low <= truth <= one.high for one in shares])),
            float(np.mean([one.at_least <= truth for one in shares])),
            float(np.mean([truth <= one.at_most for one in shares])),
            float(np.median([(one.high - one.low) / 2 for one in shares])),
        )
        for (scale, truth), shares in held.items()
    }
