"""The plan of the calibration, fixed before its first result was looked at.

Every audit is `ruler.audit` with default settings and all guards. An alarm is a verdict of residual or displaced.

random: models retrained on the retain rows; forget and held-out rows drawn at random from rows never trained on,
    80 / 160.
    Audits: 600 for each of 6 sets; 112 on CIFAR-10; 24 on TOFU.
    Counts: alarms 5% +- 2 per set and in all; p-values uniform.
chosen: the same with forget sets chosen by a rule and held-out rows from the general population, 80 / 160; each is
    audited with one oracle and with five.
    Audits: 12 per kind and set (most recent rows 24, whole class 24); 20 on CIFAR-10.
    Counts: alarms at most 2% with one oracle, at most 7% with five.
tilted: the same with forget rows drawn with chances that grow as exp(tilt z), z along a random direction of the
    features (tilts .2, .4, .8), or the rank of a row's loss or distance from the mean, or one class (.3, .6); the guard
    sees slight tilts only now and then.
    Audits: 12 per direction's tilt, 8 per other tilt, and large table, with one oracle, with five, without losses, and
    without an oracle.
    Counts: alarms at most 5% with one oracle, with or without losses, at most 7% with five; without an oracle they are
    counted only.
controls: a whole class forgotten, held-out rows of the same class.
    Audits: 40 on digits, 20 on CIFAR-10.
    Counts: alarms.
knowing: models that know their forget records, 18 kinds, 200 / 400 (5 of 60: 60 / 600); original and one oracle given.
    Audits: 4 draws per kind and set, 3 on CIFAR-10, 24 on TOFU; each also without the original, without losses, without
    an oracle.
    Counts: erased at most 1% (the full audit counts).
several: forget sets drawn at random, 200 / 400, original given; each is audited with one oracle and with five. Models
    retrained on the retain rows, the same for a tenth of the time, the overfit original itself, and a model that was
    trained on a third of the forget rows. Beside them the overfit original of a forget set of one class.
    Audits: 8 draws per set, of the last kind 4.
    Counts: retrained: alarms at most 7% with five oracles, erased no more rarely than with one; damaged at most 2%, for
    a tenth of the time too. Overfit: erased 0; inconclusive no more often with five oracles than with one.
destroyed: six kinds of model near chance, 80 / 160; not on Bank Marketing, whose models hardly beat the most frequent
    class to begin with.
    Audits: 3 draws per kind and set, 3 on CIFAR-10.
    Counts: erased 0, damaged at least 95%; clean models of part random called damaged at most 2%.
caution: retrained models whose original knew the records, true or flipped labels, n = 50, 100, 200, 500.
    Audits: 60 per kind and n.
    Counts: erased among those where a contrast saw the original; at 200 at least 80%.
groups: nothing remembered; groups of 200, 5, 5 against 30 of 10, intra-class correlation .3 in every score.
    Audits: 400, groups named and not named.
    Counts: alarms at most 7% with groups named.
coverage: normal samples of a known AUC .5, .7, .9; n 10 to 200 per side, m = n and 2 n.
    Draws: 2,000 each.
    Counts: 95% intervals cover 93-97%.
answers: evidence whose p-value is at alpha.
    Audits: 10 pieces of evidence, each in 60 row orders and with 20 seeds.
    Counts: one verdict; the same bits in every order.

Models. Tables and digits: the paper's perceptron, 50 full-batch epochs (random, chosen, tilted,
destroyed), or 400 epochs at 5e-3 (several, knowing, caution). The oracle shares the audited model's initial weights if
the world's seed is even, and has its own if it is odd; dropout always differs. CIFAR-10: the paper's small network, 20
epochs in batches of 128. TOFU: SmolLM2-135M, 5 epochs, records grouped by author.

Audits that share models: on large tables one pair of models serves 20 random audits of disjoint rows (30 pairs); on
CIFAR-10 one pair serves 28. TOFU's audits share two pairs of models and draw 30 and 50 of the same 100 authors: they
are dependent, and their rate says less than its count. Audits of part caution use 50 to 500 of the 500 records that one
original knew.
"""

from calibration import knowing, scores, several, unlearned
from calibration.destroyed import make_destroyed
from calibration.rows import Job

SETS = ("adult", "bank_marketing", "electricity", "magic", "german_credit", "digits")
N_CHOSEN, N_RECENT, N_WHOLE_CLASS, N_CONTROLS = 12, 24, 24, 40
N_KNOWING, N_DESTROYED, N_CAUTION, N_GROUPED = 4, 3, 15, 400
N_SEVERAL, N_SEVERAL_CHOSEN, N_TILTED = 8, 4, 8
N_ALONE = {200: 20, 100: 8, 50: 8, 500: 8}
CPU_PARTS = (
    "random",
    "chosen",
    "tilted",
    "several",
    "knowing",
    "destroyed",
    "caution",
    "caution-alone",
    "caution-ten",
    "groups",
    "coverage",
    "answers",
)
GPU_PARTS = ("cifar10", "tofu")
FIRST_SEED, QUICK_SEED = 0, 900_000


def list_jobs(part: str, *, is_quick: bool) -> dict[str, Job]:
    """The jobs of a part that needs no GPU, by a name that says what each one does."""
    first, scale = (QUICK_SEED, 10) if is_quick else (FIRST_SEED, 1)

    def spread(n: int) -> range:
        return range(first, first + max(1, n // scale))

    jobs: dict[str, Job] = {}
    if part == "random":
        for name in SETS:
            seeds = spread(unlearned.count_pairs(name))
            jobs |= {f"{name} {seed}": (unlearned.make_random, (name, seed)) for seed in seeds}
    elif part == "chosen":
        n_audits = {"the most recent rows": N_RECENT, "a whole class": N_WHOLE_CLASS}
        for name in SETS:
            for kind in unlearned.list_kinds(name):
                for seed in spread(n_audits.get(kind, N_CHOSEN)):
                    jobs[f"{name} {kind} {seed}"] = (unlearned.make_chosen, (name, kind, seed))
        kind = "a whole class, same held out"
        jobs |= {f"digits {kind} {s}": (unlearned.make_chosen, ("digits", kind, s)) for s in spread(N_CONTROLS)}
    elif part == "knowing":
        for make in (knowing.make_overfit, knowing.make_flipped):
            jobs |= {f"{make.__name__} {name} {s}": (make, (name, s)) for name in SETS for s in spread(N_KNOWING)}
    elif part == "tilted":
        for name in knowing.CAUTION_SETS:
            for kind, tilts in unlearned.TILTS.items():
                for tilt in tilts:
                    for seed in spread(N_CHOSEN if kind == "a direction" else N_TILTED):
                        jobs[f"{name} {kind} {tilt} {seed}"] = (unlearned.make_tilted, (name, kind, tilt, seed))
    elif part == "several":
        for make, n_draws in ((several.make_several, N_SEVERAL), (several.make_one_class, N_SEVERAL_CHOSEN)):
            jobs |= {f"{make.__name__} {name} {s}": (make, (name, s)) for name in SETS for s in spread(n_draws)}
    elif part == "destroyed":
        sets = [name for name in SETS if name != "bank_marketing"]
        jobs = {f"{name} {seed}": (make_destroyed, (name, seed)) for name in sets for seed in spread(N_DESTROYED)}
    elif part == "caution":
        sets = knowing.CAUTION_SETS
        jobs = {f"{name} {seed}": (knowing.make_caution, (name, seed)) for name in sets for seed in spread(N_CAUTION)}
    elif part in ("caution-alone", "caution-ten"):
        ratio = 10 if part == "caution-ten" else 2
        for n, n_draws in N_ALONE.items():
            for name in knowing.CAUTION_SETS:
                jobs |= {f"{name} {n} {s}": (knowing.make_caution_alone, (name, s, n, ratio)) for s in spread(n_draws)}
    elif part == "groups":
        jobs = {f"{seed}": (scores.make_grouped, (seed,)) for seed in spread(N_GROUPED)}
    elif part == "coverage":
        n_draws = scores.COVERAGE_DRAWS // scale
        for auc in scores.COVERAGE_AUCS:
            for n in scores.COVERAGE_SIZES:
                for ratio in (1, 2):
                    jobs[f"{auc} {n} {ratio}"] = (scores.measure_coverage, (auc, n, ratio, first, n_draws))
    else:
        assert part == "answers", part
        n_draws = (scores.N_ORDERS // scale, scores.N_SEEDS // scale)
        for evidence in range(max(2, scores.N_EVIDENCES // scale)):
            jobs[f"{evidence}"] = (scores.measure_answers, (evidence, first, *n_draws))
    return jobs
