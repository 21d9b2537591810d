"""The paper's studies, and how to run a smaller part or another variant of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.data import DATASETS, list_datasets
from ruler.experiment.settings import (
    ALL_METHODS,
    APPROXIMATE_METHODS,
    DEVICES,
    ENGINES,
    LANGUAGE_METHODS,
    PRECISIONS,
    StudySettings,
    can_run,
    read_studies,
)
from ruler.unlearning import METHODS


def _train_together(name: str, **settings: Any) -> StudySettings:
    """Make a study of the ten tables in full batches, whose models the ensemble trains fastest (docs/performance.md).

    No metric is shown to differ from the protocol's, but p-values near 0.05 may (docs/reproduction.md, *Two engines*).
    """
    return StudySettings(name, engine="ensemble", **settings)


def _diagnose(name: str, **settings: Any) -> StudySettings:
    """Make a diagnostic study of section 5.5: five seeds, all methods, original and oracle beside them, in float32.

    bfloat16 was compared with it (`benchmarks.precision`, docs/diagnostics.md): it changes a finding on the
    FT-Transformer and a verdict on the CNN, was not shown to be harmless for texts, and saves a quarter of the time on
    ResNet-18.
    """
    datasets = list_datasets(name)
    architectures = dict.fromkeys(model for key in datasets for model in DATASETS[key].architectures)
    return StudySettings(
        name,
        datasets=datasets,
        methods=ALL_METHODS,
        seeds=tuple(range(5)),
        has_reference_rows=True,
        engine="diagnostic",
        architectures=tuple(architectures),
        precision="float32",
        **settings,
    )


_IMAGES_BATCH, _TABLES_BATCH, _TEXTS_BATCH, _CAUSAL_BATCH = 128, 256, 16, 32
_CAUSAL_RATES = (1e-5, 5e-5)  # the public default, and what moves a model of 135 million parameters
_BERT_RATE = 5e-5
_FACE_CHOICES = ("random", "most_frequent", "single", "pair")

STUDIES: Registry[StudySettings] = Registry(
    "study",
    {
        study.name: study
        for study in (
            _train_together("primary", methods=APPROXIMATE_METHODS, has_reference_rows=True),
            _train_together("bad-teacher", methods=("bad_teacher",), teacher_seeds=(100, 101, 102)),
            _train_together("oracle-null", forget_fractions=(0.05,), compares_oracles=True),
            StudySettings(
                "minibatch",
                methods=APPROXIMATE_METHODS,
                forget_fractions=(0.05,),
                seeds=tuple(range(5)),
                batch_size=128,
                has_reference_rows=True,
            ),
            _train_together(
                "learning-rate",
                methods=APPROXIMATE_METHODS,
                forget_fractions=(0.05,),
                learning_rates=(1e-4, 5e-4, 1e-3),
            ),
            _train_together(
                "forget-seeds",
                methods=APPROXIMATE_METHODS,
                seeds=tuple(range(5)),
                forget_seeds=tuple(range(999, 1004)),
            ),
            _diagnose("large-tabular", forget_fractions=(0.05,), batch_size=_TABLES_BATCH),
            _diagnose("images", forget_fractions=(0.05,), batch_size=_IMAGES_BATCH),
            _diagnose("faces", forget_choices=_FACE_CHOICES, batch_size=_IMAGES_BATCH),
            _diagnose("clinical", learning_rates=(_BERT_RATE,), batch_size=_TEXTS_BATCH),
            StudySettings(
                "tofu",
                datasets=("tofu", "lume"),
                methods=LANGUAGE_METHODS,
                forget_fractions=(0.10, 0.05, 0.01),
                seeds=tuple(range(5)),
                learning_rates=_CAUSAL_RATES,
                batch_size=_CAUSAL_BATCH,
                has_reference_rows=True,
                engine="diagnostic",
                architectures=("causal_lm",),
                precision="bfloat16",
            ),
        )
    },
)

BEYOND_PAPER = ("tofu",)
"""Studies of ours alone: ``all`` leaves them out."""


def choose_studies(name: str) -> tuple[StudySettings, ...]:
    """The study of this name, every study of the paper for ``all``, or the studies in a file ``*.toml``.

    Raises:
        UnknownNameError: No such study.
        InputError: No such file, or a setting in it that breaks a rule.
        FileFormatError: A file that does not hold studies.

    Example:
        >>> [study.name for study in choose_studies("all")][:2]
        ['primary', 'bad-teacher']
    """
    if name == "all":
        return tuple(study for study in STUDIES.values() if study.name not in BEYOND_PAPER)
    if not name.endswith(".toml"):
        return (STUDIES[name],)
    if not Path(name).is_file():
        raise InputError(f"study must be the name of a study or a TOML file; got {name}, which does not exist.")
    return read_studies(name)


def narrow_studies(
    studies: Sequence[StudySettings],
    *,
    datasets: Sequence[str] = (),
    n_seeds: int | None = None,
    methods: Sequence[str] = (),
    forget_fractions: Sequence[float] = (),
) -> tuple[StudySettings, ...]:
    """The same studies on fewer datasets, seeds, methods or other fractions; what is not given stays whole.

    Args:
        datasets: A study that can run on none of them is dropped.
        n_seeds: Seeds 0 to ``n_seeds - 1``.
        methods: A study that runs none of them is dropped; the study of oracles is kept.

    Raises:
        InputError: No study is left, or a value breaks a rule.

    Example:
        >>> small, = narrow_studies(choose_studies("primary"), datasets=["adult"], n_seeds=2)
        >>> small.datasets, small.seeds
        (('adult',), (0, 1))
    """
    for method in methods:
        METHODS[method]
    for dataset in datasets:
        DATASETS[dataset]
    if n_seeds is not None:
        check_number(n_seeds, "seeds", minimum=1, is_whole=True)
    narrowed = []
    for study in studies:
        kept = tuple(method for method in study.methods if method in methods) if methods else study.methods
        chosen = tuple(key for key in datasets if key in _list_possible(study)) if datasets else study.datasets
        if not chosen or (not kept and not study.compares_oracles):
            continue
        if study.compares_oracles and n_seeds == 1 and len(studies) > 1:
            continue  # one seed has no pairs; asked for alone, the study says so
        architectures = study.architectures
        if study.engine == "diagnostic":
            fitting = {model for key in chosen for model in DATASETS[key].architectures}
            architectures = tuple(model for model in architectures if model in fitting)
        narrowed.append(
            replace(
                study,
                datasets=chosen,
                architectures=architectures,
                seeds=study.seeds if n_seeds is None else tuple(range(n_seeds)),
                methods=kept,
                forget_fractions=tuple(forget_fractions) or study.forget_fractions,
            )
        )
    if not narrowed and datasets:
        possible = dict.fromkeys(key for study in studies for key in _list_possible(study))
        raise InputError(
            f"datasets must name one that the study can run on: {', '.join(possible)}; got {', '.join(datasets)}. "
            "Choose another study or dataset."
        )
    if not narrowed:
        known = dict.fromkeys(method for study in studies for method in study.methods)
        raise InputError(
            f"methods must name one that the study runs: {', '.join(known)}; got {', '.join(methods)}. "
            "bad_teacher has a study of its own: bad-teacher."
        )
    return tuple(narrowed)


def _list_possible(study: StudySettings) -> tuple[str, ...]:
    """Datasets that a study may be run on: a tabular one on all tables, a diagnostic one on its own."""
    if study.engine == "diagnostic":
        return study.datasets
    return tuple(key for key in DATASETS if can_run(study.engine, key))


def shrink_studies(studies: Sequence[StudySettings]) -> tuple[StudySettings, ...]:
    """The diagnostic ones among the studies in their smallest form: one seed, few records, one epoch.

    Raises:
        InputError: None of them is diagnostic.

    Example:
        >>> small, = shrink_studies(choose_studies("images"))
        >>> small.size, small.seeds
        ('smoke', (0,))
    """
    return tuple(replace(study, size="smoke", seeds=(0,)) for study in _keep_diagnostic(studies, "smoke"))


def _keep_diagnostic(studies: Sequence[StudySettings], option: str) -> list[StudySettings]:
    """Keep the studies that an option is for."""
    kept = [study for study in studies if study.engine == "diagnostic"]
    if not kept:
        known = [study.name for study in STUDIES.values() if study.engine == "diagnostic"]
        raise InputError(
            f"{option} must be used with a diagnostic study: {', '.join(known)}; got {studies[0].name}. "
            "Omit it for a tabular one, and narrow that with --datasets and --seeds."
        )
    return kept


def choose_variant(
    studies: Sequence[StudySettings],
    *,
    engine: str | None,
    device: str,
    is_imported: bool,
    is_exported: bool = False,
    precision: str | None = None,
) -> tuple[StudySettings, ...]:
    """Studies set to an engine: by default the ensemble on a GPU, and on a CPU their own.

    On a CPU, models that are imported or exported are the protocol's, as the published ones are. Studies with mini
    batches, which the ensemble cannot train and nobody published, follow the protocol on the CPU with models trained
    here in any case. Diagnostic studies train in ``precision``, by default in their own.

    Raises:
        InputError: The protocol on a GPU, an ensemble of imported models, imported models for mini batches alone, an
            engine where all studies are diagnostic, or a precision where none is.

    Example:
        >>> studies = STUDIES["primary"], STUDIES["minibatch"]
        >>> [study.engine for study in choose_variant(studies, engine=None, device="cpu", is_imported=False)]
        ['ensemble', 'protocol']
    """
    DEVICES[device]
    if engine is not None and all(study.engine == "diagnostic" for study in studies):
        raise InputError(
            f"engine must be omitted for diagnostic studies, which have their own; got {engine!r}. "
            "Choose their device and precision instead."
        )
    if engine is not None:
        Registry("engine", dict.fromkeys(ENGINES))[engine]
    if engine == "protocol" and device == "cuda":
        raise InputError(
            "device must be cpu for the engine protocol; got cuda. Its dropout is the CPU generator's stream: "
            "omit --engine, or run on the CPU."
        )
    if is_imported and all(study.batch_size is not None for study in studies):
        raise InputError(
            "checkpoints must be omitted for mini batches; got a folder. The published models were trained full batch."
        )
    if precision is not None:
        Registry("precision", dict.fromkeys(PRECISIONS))[precision]
        _keep_diagnostic(studies, "precision")
    chosen = []
    for study in studies:
        changes: dict[str, Any] = {}
        if study.engine == "diagnostic":
            changes = {"precision": precision or study.precision}
        elif study.batch_size is None:
            on_cpu = "protocol" if is_imported or is_exported else study.engine
            default = "ensemble" if device == "cuda" else on_cpu
            changes = {"engine": engine or default, "models": "imported" if is_imported else study.models}
        chosen.append(replace(study, **changes))
    return tuple(chosen)
