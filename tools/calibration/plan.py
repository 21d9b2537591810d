"""The plan of the calibration, fixed before its first result was looked at.

Every audit is `ruler.audit` with default settings and all guards unless a line says otherwise. An alarm is a verdict
of residual or displaced. The rules were designed on other seeds (3,000,000 to 4,000,010 on tables); none of these
worlds was looked at before.

random: models retrained on the retain rows; forget and held-out rows drawn at random from rows never trained on, 80 /
    160.
    Audits: 600 for each of 6 sets.
    Counts: alarms 5% +- 2 in all; p-values uniform.
clean: models retrained on the retain rows whose original knew exactly the forget rows, with true labels or with
    planted wrong ones; 20 / 400, 50 / 400, 200 / 800. Each with one oracle, two oracles, and without the oracle,
    original or losses, with an earlier release as the reference beside the original, and with that reference only.
    Audits: 12 draws per size and set.
    Counts: of those whose original shows the records (a contrast's p-value there is at most 5%), erased: planted
    labels at least 60% at 20, 75% at 50, 90% at 200; true labels at least 40% at 200. Limit one half: no fewer than
    the earlier rule's.
knowing: models that know their forget records, 18 kinds, 50 / 400 and 200 / 400 (5 of 60: 60 / 600); original and one
    oracle given; each also without the original, without losses, without an oracle.
    Audits: 4 draws per kind, size and set.
    Counts: erased at most 1% in every variant; residual, displaced or damaged at least 95% at 50 in the full audit.
tricks: 12 ways to fool the audit and models that know a part of the records, 50 / 400 and 200 / 400.
    Audits: 4 draws per kind, size and set, half of them with wrong labels.
    Counts: erased at most 1% in every variant, named one by one.
dose: models trained on 0, .1, .25, 1/3, .5 and all of 200 forget rows from another start; three kinds of memory.
    Audits: 3 draws per set and kind.
    Counts: slope 1 +- .1 and intercept within .05 of what remains on the dose, by set, kind, outputs and layers.
same-rule: forget sets chosen by a rule, perfectly unlearned, original given, true and planted labels; up to 200 /
    400. Held-out rows from the population at large, or chosen by the same rule (control="same-rule"); one and two
    oracles.
    Audits: 4 draws per rule and set.
    Counts: by the same rule, erased at least 50% and alarms at most 7%.
chosen: forget sets chosen by a rule and held-out rows from the population at large, 80 / 160, without an original.
    Audits: 12 per kind and set (most recent rows 24, whole class 24).
    Counts: alarms at most 2% with one oracle, at most 7% with two.
tilted: the same with forget rows drawn with chances that grow as exp(tilt z), z along a random direction of the
    features (tilts .2, .4, .8), or the rank of a row's loss or distance from the mean, or one class (.3, .6).
    Audits: 12 per direction's tilt, 8 per other tilt, and large table; one oracle, two, no losses, no oracle.
    Counts: alarms at most 5% with one oracle, at most 7% with two; without an oracle they are counted only.
destroyed: six kinds of model near chance, 80 / 160; not on Bank Marketing, whose models hardly beat the most frequent
    class.
    Audits: 3 draws per kind and set.
    Counts: damaged 100%, erased 0.
groups: nothing remembered; groups of 200, 5, 5 against 30 of 10, intra-class correlation .3 in every score.
    Audits: 400, groups named and not named.
    Counts: alarms at most 7% with groups named.
coverage: simulated scores of five shapes, n 1 to 200 forget and 20 to 400 held-out records, a share of 0, .3 or 1
    left.
    Draws: 300 each.
    Counts: 95% intervals hold the truth in 93-97%; each one-sided limit in at least 93%.
answers: evidence whose p-value is at alpha.
    Audits: 10 pieces of evidence, each in 60 row orders and with 20 seeds.
    Counts: one verdict; the same bits in every order.
tofu: SmolLM2-135M, 100 authors retained, 20 forgotten, 60 held out, by author; two forget sets, one at random, one of
    the authors that the base model finds easiest. Clean models (two seeds, a shorter training, one that was trained
    on other authors besides), the original, three methods, and doses of a quarter and half of the questions. By 20,
    10 and 5 authors and one by one; with one oracle, two, the base as reference with the original, the base only, and
    after relearning.
    Counts: clean models erased with one oracle at least 90% at 20, 10 and 5; with the base only at least half of
    single authors right at a limit of one half (what the model says), none wrong; knowing ones erased 0.

Models. Tables and digits: the paper's perceptron, 50 full-batch epochs (random, chosen, tilted, destroyed), or 400
epochs at 5e-3 (the others). The oracle shares the audited model's initial weights if the world's seed is even, and
has its own if it is odd; dropout always differs.

Audits that share models: on large tables one pair of models serves 20 random audits of disjoint rows; variants of one
world share its models; TOFU's audits share a dozen models, so their rates say less than their counts.
"""

from calibration import clean, knowing, scores, unlearned
from calibration.destroyed import make_destroyed
from calibration.rows import Job

SETS = ("adult", "bank_marketing", "electricity", "magic", "german_credit", "digits")
N_CHOSEN, N_RECENT, N_WHOLE_CLASS, N_CONTROLS = 12, 24, 24, 40
N_KNOWING, N_TRICKS, N_DESTROYED, N_CLEAN, N_GROUPED = 4, 4, 3, 12, 400
N_SAME_RULE, N_TILTED, N_DOSE = 4, 8, 3
CPU_PARTS = (
    "random",
    "clean",
    "knowing",
    "tricks",
    "dose",
    "same-rule",
    "chosen",
    "tilted",
    "destroyed",
    "groups",
    "coverage",
    "answers",
)
GPU_PARTS = ("cifar10", "tofu")
FIRST_SEED, QUICK_SEED = 5_000_000, 4_000_000


def list_jobs(part: str, *, is_quick: bool) -> dict[str, Job]:
    """The jobs of a part that needs no GPU, by a name that says what each one does."""
    first, scale = (QUICK_SEED, 5) if is_quick else (FIRST_SEED, 1)

    def spread(n: int) -> range:
        return range(first, first + max(1, n // scale))

    jobs: dict[str, Job] = {}
    if part == "random":
        for name in SETS:
            seeds = spread(unlearned.count_pairs(name))
            jobs |= {f"{name} {seed}": (unlearned.make_random, (name, seed)) for seed in seeds}
    elif part == "clean":
        for name in SETS:
            jobs |= {
                f"{name} {n} {s}": (clean.make_clean, (name, s, n)) for n in clean.HELD_OUT for s in spread(N_CLEAN)
            }
    elif part == "knowing":
        for make in (knowing.make_overfit, knowing.make_flipped):
            for n in knowing.HELD_OUT:
                key = f"{make.__name__} {n}"
                jobs |= {f"{key} {name} {s}": (make, (name, s, n)) for name in SETS for s in spread(N_KNOWING)}
    elif part == "tricks":
        for n in knowing.HELD_OUT:
            jobs |= {f"{n} {name} {s}": (knowing.make_tricks, (name, s, n)) for name in SETS for s in spread(N_TRICKS)}
    elif part == "dose":
        jobs = {f"{name} {s}": (clean.make_dose, (name, s)) for name in SETS for s in spread(N_DOSE)}
    elif part == "same-rule":
        for name in SETS:
            for kind in unlearned.list_kinds(name):
                jobs |= {f"{name} {kind} {s}": (clean.make_same_rule, (name, kind, s)) for s in spread(N_SAME_RULE)}
    elif part == "chosen":
        n_audits = {"the most recent rows": N_RECENT, "a whole class": N_WHOLE_CLASS}
        for name in SETS:
            for kind in unlearned.list_kinds(name):
                for seed in spread(n_audits.get(kind, N_CHOSEN)):
                    jobs[f"{name} {kind} {seed}"] = (unlearned.make_chosen, (name, kind, seed))
        kind = "a whole class, same held out"
        jobs |= {f"digits {kind} {s}": (unlearned.make_chosen, ("digits", kind, s)) for s in spread(N_CONTROLS)}
    elif part == "tilted":
        for name in ("adult", "bank_marketing", "electricity", "magic"):
            for kind, tilts in unlearned.TILTS.items():
                for tilt in tilts:
                    for seed in spread(N_CHOSEN if kind == "a direction" else N_TILTED):
                        jobs[f"{name} {kind} {tilt} {seed}"] = (unlearned.make_tilted, (name, kind, tilt, seed))
    elif part == "destroyed":
        sets = [name for name in SETS if name != "bank_marketing"]
        jobs = {f"{name} {seed}": (make_destroyed, (name, seed)) for name in sets for seed in spread(N_DESTROYED)}
    elif part == "groups":
        jobs = {f"{seed}": (scores.make_grouped, (seed,)) for seed in spread(N_GROUPED)}
    elif part == "coverage":
        n_draws = scores.COVERAGE_DRAWS // scale
        for shape in scores.COVERAGE_SHAPES:
            for n in scores.COVERAGE_SIZES:
                for m in scores.COVERAGE_CONTROLS:
                    jobs[f"{shape} {n} {m}"] = (scores.measure_coverage, (shape, n, m, first, n_draws))
    else:
        assert part == "answers", part
        n_draws = (scores.N_ORDERS // scale, scores.N_SEEDS // scale)
        for evidence in range(max(2, scores.N_EVIDENCES // scale)):
            jobs[f"{evidence}"] = (scores.measure_answers, (evidence, first, *n_draws))
    return jobs
