"""What a person may decide about an audit, with defaults that docs/statistics.md argues for."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from ruler.core.checks import check_number
from ruler.core.errors import InputError

Alignment = Literal["auto", "never", "always"]
Scope = Literal["layers", "outputs"]
ControlRule = Literal["random", "same-rule"]


@dataclass(frozen=True)
class AuditSettings:
    """Error rates, limit and numbers of draws of an audit.

    Args:
        alpha: Error rate of the tests that can accuse a model.
        limit: Most that may remain of the trace of training, on the scale from 0 (never seen) to 1 (trained on).
        limit_chosen_by: Who chose the limit, and when; shown in the report. None if it is the default.
        confidence: Of intervals, and of the one-sided limits that must lie inside (-limit, limit) for "erased".
        scope: "layers" asks what the model says and what its layers hold; "outputs" only what it says.
        control: How the held-out records were chosen: "random" if both sides were drawn at random, or "same-rule" if
            the rule that chose the forget records was replayed on records that were never trained on. Declared by
            whoever runs the audit.
        n_permutations: Labellings that the permutation tests draw.
        seed: Of the samples for ``n_reference`` and for plots. Permutations draw by the records' content, so that no
            seed can be chosen for its verdict.
        align: Compare with the oracle after an orthogonal map: "auto" does so where models are not seed-paired.
        match_labels: Compare forget with held-out records of the same labels, in the forget set's proportions. Strata
            that the records carry are matched in any case.
        least_similarity: Linear CKA of retain records to the oracle under which a model counts as damaged.
        n_plotted: Most values that a distribution keeps for the plots.
        n_reference: Retain records that M4 ranks against, drawn at random (with replacement), for sets too large to
            search in themselves; None ranks against all. Forget and held-out records meet all retain records either
            way, and the report states how far M4 can be off.

    Example:
        >>> AuditSettings(limit=0.1).alpha
        0.05
    """

    alpha: float = 0.05
    limit: float = 0.2
    limit_chosen_by: str | None = None
    confidence: float = 0.95
    scope: Scope = "layers"
    control: ControlRule = "random"
    n_permutations: int = 2000
    seed: int = 0
    align: Alignment = "auto"
    match_labels: bool = False
    least_similarity: float = 0.7
    n_plotted: int = 2000
    n_reference: int | None = None

    def __post_init__(self) -> None:
        for name, ceiling in (
            ("alpha", 0.5),
            ("limit", 1.0),
            ("confidence", 1.0),
            ("least_similarity", 1.0),
        ):
            value = getattr(self, name)
            check_number(value, name, minimum=0, is_strict=True)
            if value >= ceiling:
                default = AuditSettings.__dataclass_fields__[name].default
                raise InputError(f"{name} must be under {ceiling:g}; got {value!r}. The default is {default:g}.")
        for name, least in (("n_permutations", 99), ("seed", 0), ("n_plotted", 10)):
            check_number(getattr(self, name), name, minimum=least, is_whole=True)
        if self.n_reference is not None:
            check_number(self.n_reference, "n_reference", minimum=100, is_whole=True)
        if not isinstance(self.match_labels, bool):
            raise InputError(f"match_labels must be True or False; got {self.match_labels!r}.")
        if not isinstance(self.limit_chosen_by, str | None):
            raise InputError(f"limit_chosen_by must be text; got {self.limit_chosen_by!r}.")
        for name, words in (("align", Alignment), ("scope", Scope), ("control", ControlRule)):
            if getattr(self, name) not in get_args(words):
                allowed = ", ".join(get_args(words))
                raise InputError(f"{name} must be one of {allowed}; got {getattr(self, name)!r}.")


def check_settings(settings: Any) -> AuditSettings:
    """The settings, or the defaults.

    Raises:
        InputError: Anything else, such as a dict.
    """
    if settings is None or isinstance(settings, AuditSettings):
        return settings or AuditSettings()
    example = ", ".join(f"{name}={value!r}" for name, value in settings.items()) if isinstance(settings, dict) else ""
    raise InputError(
        f"settings must be AuditSettings; got {type(settings).__name__}. "
        f"Write settings=ruler.AuditSettings({example or 'alpha=0.01'})."
    )
