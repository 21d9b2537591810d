"""Attacks on the audited model: what comes back under one was not erased."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Side
from ruler.auditing.findings import AttackFinding, Report, Verdict
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.core.types import IndexArray
from ruler.embeddings.language.attacks import quantize_model

if TYPE_CHECKING:
    import torch

    Change = Callable[[torch.nn.Module], torch.nn.Module]

LEAST_RELEARNED = 32
"""So many held-out records are relearned with a half, if there are so many: a few steps would bring nothing back."""

LEAST_TAUGHT, N_RATES = 0.2, 4
"""Relearning must bring the held-out records that it trains on so far towards retain records; rates to try, each
three times the last. Training that teaches less brings nothing back, whatever the layers hold."""

_RELEARNED_SIDES: tuple[Side, ...] = ("forget", "held_out")


@dataclass(frozen=True)
class Attack:
    """Something done to every model of an audit alike.

    Args:
        name: As it is asked for.
        words: What was done, behind "after".
        apply: A model -> the attacked copy, which is audited again; None for relearning, which adds evidence to the
            plain audit.
    """

    name: str
    words: str
    apply: "Change | None"


def _quantize(model: "torch.nn.Module") -> "torch.nn.Module":
    if getattr(model, "hf_quantizer", None) is not None:
        raise InputError("quantize must be tried on whole weights; got 4- or 8-bit ones. Leave load_in out.")
    return quantize_model(model)


RELEARN = "relearn"
ATTACKS: Registry[Attack] = Registry(
    "attack",
    {
        "quantize": Attack("quantize", "the weights of linear layers were rounded to 4-bit NormalFloat", _quantize),
        RELEARN: Attack(RELEARN, "one epoch of training on the other half of the forget and held-out records", None),
    },
    type=Attack,
)


def choose_attacks(names: str | Sequence[str] | None) -> list[Attack]:
    """The attacks of these names, each once.

    Raises:
        UnknownNameError: No such attack.

    Example:
        >>> [attack.name for attack in choose_attacks("quantize")]
        ['quantize']
    """
    listed = [] if names is None else [names] if isinstance(names, str) else names
    return [ATTACKS[name] for name in dict.fromkeys(listed)]


def share_alpha(settings: AuditSettings | None, attacks: Sequence[Attack]) -> AuditSettings:
    """Settings of each audit: plain and attacked ones share the error rate, since one alarm of any is an alarm.

    Relearning is no audit of its own, so it takes no part of the error rate.

    Example:
        >>> share_alpha(None, choose_attacks(["quantize", "relearn"])).alpha
        0.025
    """
    whole = settings or AuditSettings()
    return replace(whole, alpha=whole.alpha / (1 + sum(one.apply is not None for one in attacks)))


@dataclass(frozen=True, eq=False)
class Halves:
    """How forget and held-out records are split so that each is read from a model that did not relearn it.

    Args:
        second: By side, (n,) whether a record belongs to the second half.
        relearned: Of the first and the second half, by side, the rows to train on.
    """

    second: Mapping[Side, npt.NDArray[np.bool_]]
    relearned: tuple[Mapping[Side, IndexArray], Mapping[Side, IndexArray]]


def split_halves(keys: Mapping[Side, npt.NDArray[Any]], groups: Mapping[Side, npt.NDArray[Any]]) -> Halves:
    """Two halves of every group's records, or of all records, at random by content.

    Both sides must be treated alike, or the control is not fair. If groups are named on both, all records of a half are
    relearned, so that every group is read after its own other half was relearned. Otherwise as many held-out records as
    forget records are drawn, but at least 32.

    Args:
        keys: By side, numbers that follow from the records' content.
        groups: By side, (n,) labels, where known.

    Raises:
        InputError: A side with fewer than two records.

    Example:
        >>> halves = split_halves({"forget": np.arange(4), "held_out": np.arange(6)}, {})
        >>> halves.second["forget"].tolist(), [rows["held_out"].tolist() for rows in halves.relearned]
        ([False, True, False, True], [[0, 2, 4], [1, 3, 5]])
    """
    second: dict[Side, npt.NDArray[np.bool_]] = {}
    for side in _RELEARNED_SIDES:
        n = len(keys.get(side, ()))
        if n < 2:
            name = side.replace("_", "-")
            raise InputError(f"relearning must have at least 2 {name} records; got {n}. Give more, or leave it out.")
        owners = np.unique(groups[side], return_inverse=True)[1] if side in groups else np.zeros(n, dtype=np.intp)
        second[side] = np.empty(n, dtype=bool)
        second[side][np.lexsort((keys[side], owners))] = np.arange(n) % 2 == 1
    halves = []
    for is_second in (False, True):
        rows = {
            side: order[second[side][order] == is_second]
            for side in _RELEARNED_SIDES
            for order in [np.argsort(keys[side], kind="stable")]
        }
        if not groups.keys() >= set(_RELEARNED_SIDES):
            rows["held_out"] = rows["held_out"][: max(LEAST_RELEARNED, len(rows["forget"]))]
        halves.append(rows)
    return Halves(second, (halves[0], halves[1]))


def describe_attack(attack: Attack, report: Report, n_flagged: int) -> AttackFinding:
    """What the audit of the attacked models found."""
    return AttackFinding(
        name=attack.name,
        words=attack.words,
        verdict=report.verdict,
        reason=report.reason,
        metrics=report.metrics,
        guards=report.guards,
        n_flagged=n_flagged,
    )


def combine_verdicts(verdict: Verdict, reason: str, attacks: Mapping[str, AttackFinding]) -> tuple[Verdict, str]:
    """The worse of the plain audit's verdict and those of the attacked models, and the reason for it.

    An attack can bring back what was hidden, so its residual or displaced contrasts count like plain ones. That an
    audit of attacked models cannot be carried out says nothing of forgetting: it only stands in the way of "erased".
    Whether an attacked model still works is not asked, since the attack may have broken it.

    Args:
        verdict: Of the plain audit.
        reason: Its reason.
        attacks: By name, with their own verdicts.
    """
    if not attacks:
        return verdict, reason
    if verdict in ("erased", "inconclusive"):
        for worse in ("residual", "displaced"):
            found = next((one for one in attacks.values() if one.verdict == worse), None)
            if found is not None:
                return found.verdict, f"What comes back was not erased. After {found.words}: {found.reason}"
    after = " ".join(f"After {one.words}: {one.verdict}." for one in attacks.values())
    doubtful = next((one for one in attacks.values() if one.verdict != "erased"), None)
    if verdict == "erased" and doubtful is not None:
        return "inconclusive", (
            f"The model as it is would count as erased, but not after {doubtful.words}, where the audit is "
            f"{doubtful.verdict}: {doubtful.reason}"
        )
    return verdict, f"{reason} {after}"


def check_no_attack(names: str | Sequence[str] | None) -> None:
    """Refuse attacks where there are embeddings only.

    Raises:
        InputError: Some are asked for.
    """
    if names:
        raise InputError("attack must be used with models; got embeddings, which cannot be attacked. Leave it out.")
