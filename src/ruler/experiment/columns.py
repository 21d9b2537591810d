"""The columns of a results file, and what SQLite keeps in each."""

from ruler.auditing.contrasts import OWN

_CELL = {
    "study": "TEXT NOT NULL",
    "dataset": "TEXT NOT NULL",
    "method": "TEXT NOT NULL",
    "forget_fraction": "REAL NOT NULL",
    "seed": "INTEGER NOT NULL",
    "learning_rate": "REAL",
    "batch_size": "INTEGER",
    "forget_seed": "INTEGER NOT NULL",
    "teacher_seed": "INTEGER",
    "other_seed": "INTEGER",
}
_SCORES = {
    "n_forget": "INTEGER",
    **dict.fromkeys(("m1", "m2", "m2_mean_baseline", "m3", "m4", "mia"), "REAL"),
    **dict.fromkeys(("forget_accuracy", "retain_accuracy", "test_accuracy"), "REAL"),
}
_CONTROLS = {
    "m4_held_out": "REAL",
    **dict.fromkeys(("m4_placebo", "m4_placebo_sd", "m4_placebo_low", "m4_placebo_high", "m4_placebo_p"), "REAL"),
    "n_groups": "INTEGER",
}
_DECIDING = tuple(name for name, contrast in OWN.items() if contrast.decides)
_AUDIT = {
    **dict.fromkeys(("verdict", *(f"{name}_verdict" for name in _DECIDING), "seen"), "TEXT"),
    **{f"{name}_{value}": "REAL" for name in _DECIDING for value in ("effect", "p_value")},
    **dict.fromkeys(("damage_similarity", "damage_skill"), "REAL"),
}
_VARIANT = {"engine": "TEXT NOT NULL", "models": "TEXT NOT NULL"}
LATER_COLUMNS = {
    "architecture": "TEXT NOT NULL DEFAULT 'tabular_mlp'",
    "forget_choice": "TEXT NOT NULL DEFAULT 'random'",
    "precision": "TEXT",
    "size": "TEXT NOT NULL DEFAULT 'full'",
    "model": "TEXT",
    **_CONTROLS,
    **_AUDIT,
    **dict.fromkeys(("layers", "peers", "reasons", "recipe", "options", "choice"), "TEXT"),
    **dict.fromkeys(("unlearning_s", "retraining_s"), "REAL"),
}
"""Later columns: a file that lacks some of them gets them when it is opened."""
_PROVENANCE = {
    "device": "TEXT",
    "elapsed_s": "REAL",
    **dict.fromkeys(("ruler_version", "commit", "torch_version", "machine", "finished_at"), "TEXT"),
}
FIRST_COLUMNS = _CELL | _SCORES | _VARIANT | _PROVENANCE
COLUMNS = FIRST_COLUMNS | LATER_COLUMNS
NUMERIC = (
    *("learning_rate", "batch_size", "teacher_seed", "other_seed", *_SCORES),
    *(name for name, kind in LATER_COLUMNS.items() if not kind.startswith("TEXT")),
)
ORDER = (
    *("study", "dataset", "forget_fraction", "forget_seed", "seed", "other_seed"),
    *("method", "learning_rate", "teacher_seed", "architecture", "forget_choice"),
)
