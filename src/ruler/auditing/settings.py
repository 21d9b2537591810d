"""What a person may decide about an audit, with defaults that docs/statistics.md argues for."""

from dataclasses import dataclass
from typing import Literal

from ruler.core.checks import check_number
from ruler.core.errors import InputError

Alignment = Literal["auto", "never", "always"]


@dataclass(frozen=True)
class AuditSettings:
    """Error rates, margin and numbers of draws of an audit.

    Args:
        alpha: Error rate of every test; intervals have level 1 - alpha.
        margin: Largest distance of an AUC from 1/2 that still counts as erased: at 0.1, whoever sees the
            representations tells a forget record from its control in at most 60 of 100 pairs.
        power: Chance to see an effect, for the minimum detectable effect and the records needed.
        n_permutations: Draws of the permutation and placebo tests; fewer where all can be counted.
        n_bootstrap: Draws behind each interval.
        seed: Of every draw: the same evidence and settings give the same report.
        align: Compare with the oracle after an orthogonal map: "auto" does so where models are not seed-paired.
        n_plotted: Most values a distribution keeps for the plots.
        n_reference: Retain records that M4 ranks against, drawn at random (with replacement), for sets too large to
            search in themselves; None ranks against all. Forget and held-out records meet all retain records either
            way, and the report states how far M4 can be off. Needs held-out records.

    Example:
        >>> AuditSettings(margin=0.05).alpha
        0.05
    """

    alpha: float = 0.05
    margin: float = 0.1
    power: float = 0.8
    n_permutations: int = 2000
    n_bootstrap: int = 2000
    seed: int = 0
    align: Alignment = "auto"
    n_plotted: int = 2000
    n_reference: int | None = None

    def __post_init__(self) -> None:
        for name, ceiling in (("alpha", 0.5), ("margin", 0.5), ("power", 1.0)):
            value = getattr(self, name)
            check_number(value, name, minimum=0, is_strict=True)
            if value >= ceiling:
                raise InputError(
                    f"{name} must be under {ceiling:g}; got {value!r}. The default is {_DEFAULTS[name]:g}."
                )
        for name, least in (("n_permutations", 99), ("n_bootstrap", 99), ("seed", 0), ("n_plotted", 10)):
            check_number(getattr(self, name), name, minimum=least, is_whole=True)
        if self.n_reference is not None:
            check_number(self.n_reference, "n_reference", minimum=100, is_whole=True)
        if self.align not in ("auto", "never", "always"):
            raise InputError(f"align must be one of auto, never, always; got {self.align!r}.")


_DEFAULTS = {"alpha": 0.05, "margin": 0.1, "power": 0.8}
