"""The paper's studies, and how to run a smaller part of them."""

from collections.abc import Sequence
from dataclasses import replace

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.experiment.settings import APPROXIMATE_METHODS, METHOD_NAMES, StudySettings

LATER_STUDIES = ("large-tabular", "images", "clinical", "faces")

STUDIES: Registry[StudySettings] = Registry(
    "study",
    {
        study.name: study
        for study in (
            StudySettings("primary", methods=APPROXIMATE_METHODS, has_reference_rows=True),
            StudySettings("bad-teacher", methods=("bad_teacher",), teacher_seeds=(100, 101, 102)),
            StudySettings("oracle-null", forget_fractions=(0.05,), compares_oracles=True),
            StudySettings(
                "minibatch",
                methods=APPROXIMATE_METHODS,
                forget_fractions=(0.05,),
                seeds=tuple(range(5)),
                batch_size=128,
                has_reference_rows=True,
            ),
            StudySettings(
                "learning-rate",
                methods=APPROXIMATE_METHODS,
                forget_fractions=(0.05,),
                learning_rates=(1e-4, 5e-4, 1e-3),
            ),
            StudySettings(
                "forget-seeds",
                methods=APPROXIMATE_METHODS,
                seeds=tuple(range(5)),
                forget_seeds=tuple(range(999, 1004)),
            ),
        )
    },
)


def choose_studies(name: str) -> tuple[StudySettings, ...]:
    """The study of this name, or every study there is for ``all``.

    Raises:
        InputError: A study of the paper that this version does not run yet.
        UnknownNameError: No such study.

    Example:
        >>> [study.name for study in choose_studies("all")][:2]
        ['primary', 'bad-teacher']
    """
    if name == "all":
        return tuple(STUDIES.values())
    if name in LATER_STUDIES:
        raise InputError(
            f"study must be one that this version runs: {', '.join(STUDIES)} or all; got {name!r}, which comes later. "
            "Choose one of these."
        )
    return (STUDIES[name],)


def narrow_studies(
    studies: Sequence[StudySettings],
    *,
    datasets: Sequence[str] = (),
    n_seeds: int | None = None,
    methods: Sequence[str] = (),
    forget_fractions: Sequence[float] = (),
) -> tuple[StudySettings, ...]:
    """The same studies on fewer datasets, seeds, methods or other fractions; what is left out stays whole.

    Args:
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
        METHOD_NAMES[method]
    if n_seeds is not None:
        check_number(n_seeds, "seeds", minimum=1, is_whole=True)
    narrowed = []
    for study in studies:
        kept = tuple(method for method in study.methods if method in methods) if methods else study.methods
        if not kept and not study.compares_oracles:
            continue
        if study.compares_oracles and n_seeds == 1 and len(studies) > 1:
            continue  # one seed has no pairs; asked for alone, the study says so
        narrowed.append(
            replace(
                study,
                datasets=tuple(datasets) or study.datasets,
                seeds=study.seeds if n_seeds is None else tuple(range(n_seeds)),
                methods=kept,
                forget_fractions=tuple(forget_fractions) or study.forget_fractions,
            )
        )
    if not narrowed:
        known = dict.fromkeys(method for study in studies for method in study.methods)
        raise InputError(
            f"methods must name one that the study runs: {', '.join(known)}; got {', '.join(methods)}. "
            "bad_teacher has a study of its own: bad-teacher."
        )
    return tuple(narrowed)
