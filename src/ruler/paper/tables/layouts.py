"""The layouts of the paper's tables."""

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.names import title_of
from ruler.paper.tables.layout import (
    Column,
    Layout,
    print_count,
    print_fixed,
    print_membership,
    print_p,
)

_GAP, _SHORT_GAP = print_fixed(5, signed=True), print_fixed(4, signed=True)
_RANK, _LONG_RANK = print_fixed(3), print_fixed(4)
_EFFECT, _LONG_EFFECT = print_fixed(2, signed=True), print_fixed(3, signed=True)
_RATES = {1e-4: "η=1e-4", 5e-4: "η=5e-4", 1e-3: "η=1e-3"}
_STARS = "Significance: * p<0.05, ** p<0.01, *** p<0.001."
_BY_CONDITION = ("forget_fraction", "method")

TABLE_1 = Layout(
    "M2 and M4 across forget fractions. p from a linear mixed-effects model with a random intercept by dataset; "
    f"r_rb from the pooled Wilcoxon signed-rank test. {_STARS}",
    rows=_BY_CONDITION,
    columns=(
        Column("gap", "m2_mean", _GAP, "M2"),
        Column("p", "m2_p_mixed", print_p, "M2"),
        Column("r_rb", "m2_rank_biserial", _EFFECT, "M2"),
        Column("rank", "m4_mean", _RANK, "M4"),
        Column("p", "m4_p_mixed", print_p, "M4"),
        Column("r_rb", "m4_rank_biserial", _EFFECT, "M4"),
    ),
)

TABLE_3 = Layout(
    "Output-level evaluation, mean ± SD over runs. Chance of the membership attack (MIA) is 0.50.",
    rows=_BY_CONDITION,
    columns=tuple(
        Column(header, f"{metric}_mean", _RANK, spread=f"{metric}_sd")
        for header, metric in (
            ("MIA acc.", "mia"),
            ("Forget acc.", "forget_accuracy"),
            ("Retain acc.", "retain_accuracy"),
            ("Test acc.", "test_accuracy"),
        )
    ),
)

TABLE_4 = Layout(
    "Membership attack (MIA) accuracy by dataset, mean over seeds. Bold: 0.05 or more away from chance.",
    rows=("forget_fraction", "dataset"),
    columns=tuple(
        Column(title_of(method), "mia_mean", print_membership, keys={"method": method})
        for method in (*APPROXIMATE_METHODS, "oracle")
    ),
)

TABLE_5 = Layout(
    f"M2 against the median and against the mean of the retain similarities. Pooled Wilcoxon test. {_STARS}",
    rows=_BY_CONDITION,
    columns=tuple(
        Column(header, column, style, f"{baseline.capitalize()} baseline", {"baseline": baseline})
        for baseline in ("median", "mean")
        for header, column, style in (
            ("M2", "m2_mean", _GAP),
            ("p", "m2_p_wilcoxon", print_p),
            ("r_rb", "m2_rank_biserial", _EFFECT),
        )
    ),
)

TABLE_6 = Layout(
    "M2 and M4 under mini-batch training. p_LMM from the mixed-effects model, n/a where its fit is singular; "
    f"p_Wilc from the pooled Wilcoxon test. {_STARS}",
    rows=_BY_CONDITION,
    columns=tuple(
        Column(header, f"{metric}_{statistic}", style, group)
        for group, metric, mean_style in (("M2", "m2", _GAP), ("M4", "m4", _RANK))
        for header, statistic, style in (
            ("mean", "mean", mean_style),
            ("p_LMM", "p_mixed", print_p),
            ("p_Wilc", "p_wilcoxon", print_p),
            ("r_rb", "rank_biserial", _EFFECT),
        )
    ),
)

_LEARNING_RATES = (
    *(Column(head, "m2_mean", _SHORT_GAP, "M2 gap", {"learning_rate": rate}) for rate, head in _RATES.items()),
    *(Column(head, "m4_mean", _RANK, "M4 rank", {"learning_rate": rate}) for rate, head in _RATES.items()),
    Column("Holds", "n_holds", print_count),
)
_BY_RATE = "{} Epochs grow with the rate. Holds: learning rates at which M2<0 and M4>0.50; bold where not at every one."
TABLE_7 = Layout(
    _BY_RATE.format("M2 and M4 across unlearning learning rates, part 1."),
    rows=("forget_fraction", "dataset", "method"),
    columns=_LEARNING_RATES,
)
TABLE_8 = Layout(
    _BY_RATE.format("M2 and M4 across unlearning learning rates, part 2."),
    rows=("forget_fraction", "dataset", "method"),
    columns=_LEARNING_RATES,
)

TABLE_9 = Layout(
    "Variability of M2 and M4 across forget sets. sign: how many of the values (method x forget set, each a mean "
    "over training seeds) of M2 are negative, bold where not all. SD: median over methods of the standard deviation "
    "across forget sets.",
    rows=("dataset", "forget_fraction"),
    columns=(
        Column("|Df|", "n_forget", print_count),
        Column("sign", "m2_n_negative", print_count),
        Column("M2 SD", "m2_seed_sd", _LONG_RANK),
        Column("M4 SD", "m4_seed_sd", _RANK),
    ),
)

TABLE_10 = Layout(
    "M2 and M4 of five methods on dataset means. Exact Wilcoxon signed-rank test, "
    f"nulls 0 for M2 and 0.50 for M4. {_STARS}",
    rows=_BY_CONDITION,
    columns=tuple(
        Column(header, f"{metric}_{statistic}", style, group)
        for group, metric, mean_style in (("M2", "m2", _GAP), ("M4", "m4", _LONG_RANK))
        for header, statistic, style in (
            ("mean", "mean", mean_style),
            ("p", "p_wilcoxon_datasets", print_p),
            ("r_rb", "rank_biserial_datasets", _LONG_EFFECT),
        )
    ),
)

_TEACHER = {"other_method": "bad_teacher"}
TABLE_11 = Layout(
    f"M4 of Bad Teacher against each method, paired by dataset. Difference: Bad Teacher minus method. {_STARS}",
    rows=_BY_CONDITION,
    columns=(
        Column("M4 mean", "m4_mean", _LONG_RANK, keys=_TEACHER),
        Column("Difference", "m4_difference", _SHORT_GAP, keys=_TEACHER),
        Column("p", "m4_p_paired", print_p, keys=_TEACHER),
    ),
)

METHODS = Layout(
    "Every method against every other (section 5.3). Paired Wilcoxon tests on dataset means over all fractions, p "
    f"after Benjamini-Hochberg correction over all tests. {_STARS}",
    rows=("method", "other_method"),
    columns=tuple(
        Column(header, f"{metric}_{statistic}", style, group)
        for group, metric in (("M2", "m2"), ("M4", "m4"), ("MIA", "mia"), ("Retain acc.", "retain_accuracy"))
        for header, statistic, style in (("difference", "difference", _GAP), ("p_adj", "p_adjusted", print_p))
    ),
)
