"""Attacks on the audited model: what comes back under one was not erased."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ruler.auditing.findings import AttackFinding, Report, Verdict
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.embeddings.language.attacks import quantize_model, relearn_records

if TYPE_CHECKING:
    import torch

    Change = Callable[[torch.nn.Module], torch.nn.Module]


@dataclass(frozen=True)
class Attack:
    """Something done to every model of an audit alike, oracles included, before it is audited again.

    A contrast of forget and held-out records stays fair only if the attack cannot tell the two apart. So one that
    trains must train on both: after one epoch on forget records alone, the oracle knows them too, and held-out records
    are no control any more.

    Args:
        name: As it is asked for.
        words: What was done, behind "after".
        apply: A model and, by name, ``records`` (by side), ``seed``, ``device`` and ``progress`` -> the attacked copy.
    """

    name: str
    words: str
    apply: "Callable[..., torch.nn.Module]"


def _quantize(model: "torch.nn.Module", **_: Any) -> "torch.nn.Module":
    if getattr(model, "hf_quantizer", None) is not None:
        raise InputError("quantize must be tried on whole weights; got 4- or 8-bit ones. Leave load_in out.")
    return quantize_model(model)


def _relearn(model: "torch.nn.Module", *, records: Mapping[Any, Any], **how: Any) -> "torch.nn.Module":
    return relearn_records(model, [records[side] for side in ("forget", "held_out") if side in records], **how)


ATTACKS: Registry[Attack] = Registry(
    "attack",
    {
        "quantize": Attack(
            "quantize",
            "the weights of linear layers were rounded to 4-bit NormalFloat",
            _quantize,
        ),
        "relearn": Attack(
            "relearn",
            "one epoch of training on forget and held-out records together (AdamW, learning rate 2e-5)",
            _relearn,
        ),
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

    Example:
        >>> share_alpha(None, choose_attacks("quantize")).alpha
        0.025
    """
    whole = settings or AuditSettings()
    return replace(whole, alpha=whole.alpha / (1 + len(attacks)))


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
