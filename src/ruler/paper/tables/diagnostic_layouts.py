"""How Tables 12 to 14 and the tables of controls are set."""

from ruler.paper.tables.layout import Column, Layout, print_answer, print_count, print_fixed, print_p

_RANK, _LONG_RANK, _GAP, _SHIFT = (
    print_fixed(3),
    print_fixed(4),
    print_fixed(4, signed=True),
    print_fixed(3, signed=True),
)
_NULLS = "Nulls: 0.50 for M4, 0 for M2. Held-out: M4 of records that no model was trained on, in the same model."
_ROWS = ("dataset", "architecture", "forget_fraction", "method")
_OURS_ONLY = "Oracle and Bad Teacher are ours alone."
_COMMON = (
    Column("held-out", "m4_held_out_mean", _RANK, "M4"),
    Column("M2", "m2_mean", _GAP, spread="m2_sd"),
    Column("Test acc.", "test_accuracy_mean", _RANK),
    Column("Forgotten", "n_forget_mean", print_count),
)

TABLE_12 = Layout(
    "M4 on large tables at a forget fraction of 5%. Mean ± SD over seeds; the paper gives no SD. "
    f"{_NULLS} {_OURS_ONLY} Higgs: the paper forgets 4,000 of 100,000 rows; with fewer forgotten, ours has fewer rows.",
    rows=_ROWS,
    columns=(
        Column("paper", "m4_mean_paper", _RANK, "M4"),
        Column("ours", "m4_mean", _RANK, "M4", spread="m4_sd"),
        *_COMMON,
    ),
    first=("original",),
)

TABLE_13 = Layout(
    f"M4 on images at a forget fraction of 5%. Mean ± SD over seeds. {_NULLS} {_OURS_ONLY}",
    rows=_ROWS,
    columns=(
        Column("paper", "m4_mean_paper", _LONG_RANK, "M4", spread="m4_sd_paper"),
        Column("ours", "m4_mean", _LONG_RANK, "M4", spread="m4_sd"),
        *_COMMON,
    ),
    first=("original",),
)

TABLE_14 = Layout(
    f"M4 on faces, whole identities forgotten, by forget fraction. Mean ± SD over seeds. {_NULLS} {_OURS_ONLY}",
    rows=_ROWS,
    columns=(
        Column("paper", "m4_mean_paper", _RANK, "M4", spread="m4_sd_paper"),
        Column("ours", "m4_mean", _RANK, "M4", spread="m4_sd"),
        *_COMMON,
    ),
    first=("original",),
)

CLINICAL = Layout(
    "M2 and M4 on clinical text, whole documents forgotten, by forget fraction. Mean ± SD over seeds. "
    f"{_NULLS} {_OURS_ONLY} Test acc.: of masked words.",
    rows=_ROWS,
    columns=(
        Column("paper", "m4_mean_paper", _RANK, "M4"),
        Column("ours", "m4_mean", _RANK, "M4", spread="m4_sd"),
        Column("held-out", "m4_held_out_mean", _RANK, "M4"),
        Column("paper", "m2_mean_paper", _SHIFT, "M2"),
        Column("ours", "m2_mean", _SHIFT, "M2", spread="m2_sd"),
        *_COMMON[2:],
    ),
    first=("original",),
)

FACE_CONTROLS = Layout(
    "M4 of forgotten identities before unlearning, beside its controls. Oracle: the same faces in a model that never "
    "saw them. Held-out: identities that neither model saw. Placebo: random sets of the identities that the model was "
    "trained on, of about as many images, in the forget role; for one alone, every identity alone. 95%: the range of "
    "so many of these sets, and whether it holds the paper's M4. p: permutation test of the forgotten identities among "
    "them, over seeds; combined by Rueger's rule, which holds whatever the dependence of seeds. Most frequent: no "
    "other identity has as many images, so nearly all of its placebos hold several identities, in the original "
    "at times itself among them, and its p is not a test among single identities of that size.",
    rows=("dataset", "architecture", "forget_choice", "forget_fraction"),
    columns=(
        Column("People", "n_groups_mean", print_count),
        Column("Images", "n_forget_mean", print_count),
        Column("paper", "m4_original_mean_paper", _RANK, "M4"),
        Column("original", "m4_original_mean", _RANK, "M4", spread="m4_original_sd"),
        Column("oracle", "m4_oracle_mean", _RANK, "M4", spread="m4_oracle_sd"),
        Column("held-out", "m4_held_out_mean", _RANK, "M4", spread="m4_held_out_sd"),
        Column("difference", "m4_difference", _SHIFT, "Original minus oracle"),
        Column("95% from", "m4_difference_low", _SHIFT, "Original minus oracle"),
        Column("to", "m4_difference_high", _SHIFT, "Original minus oracle"),
        Column("mean", "m4_placebo_mean", _RANK, "Placebo"),
        Column("95% from", "m4_placebo_low_mean", _RANK, "Placebo"),
        Column("to", "m4_placebo_high_mean", _RANK, "Placebo"),
        Column("holds the paper's", "m4_placebo_holds_paper", print_answer, "Placebo"),
        Column("median", "m4_original_p_median", print_p, "p"),
        Column("least", "m4_original_p_min", print_p, "p"),
        Column("most", "m4_original_p_max", print_p, "p"),
        Column("combined", "m4_original_p_combined", print_p, "p"),
        Column("oracle, combined", "m4_oracle_p_combined", print_p, "p"),
    ),
)

CLINICAL_LEAK = Layout(
    "What a split by row does to M4 on clinical text. Many transcriptions are listed several times: split by row, "
    "copies of forgotten documents stay in the retain set. Leak: by row minus by distinct text, with Welch's 95% "
    "interval over seeds.",
    rows=("architecture", "forget_fraction", "method"),
    columns=(
        Column("distinct text", "m4_distinct_mean", _RANK, "M4 by", spread="m4_distinct_sd"),
        Column("row", "m4_rows_mean", _RANK, "M4 by", spread="m4_rows_sd"),
        Column("difference", "m4_leak", _SHIFT, "Leak"),
        Column("95% from", "m4_leak_low", _SHIFT, "Leak"),
        Column("to", "m4_leak_high", _SHIFT, "Leak"),
    ),
    first=("original",),
)
