"""IdkDPO (Maini et al., 2024, with the loss of Rafailov et al., 2023): prefer "I don't know" to the forget answers.

The forget records are ``Preferences``: the completions to forget, and for the same prompts refusals, such as those of
``draw_refusals``, encoded by the caller in the same way.
"""

import random
from dataclasses import dataclass

from ruler.unlearning.language.npo import NpoSettings, prefer
from ruler.unlearning.method import Batch, Method, Module, Objective, Tensor

REFUSALS = (
    "I don't know.",
    "I don't know the answer to that.",
    "I'm not sure about that.",
    "I have no information on this.",
    "I can't answer that question.",
    "I'm afraid I don't know.",
    "That is not something I know about.",
    "I'm sorry, but I have no answer to this.",
    "I don't have any details about that.",
    "I was never told about this.",
    "I am not able to say.",
    "Nothing that I have learned tells me that.",
)
"""What to say instead of a forgotten answer."""


def draw_refusals(n: int, seed: int = 100) -> list[str]:
    """Refusals for n prompts, drawn from ``REFUSALS`` with replacement.

    Example:
        >>> set(draw_refusals(50)) <= set(REFUSALS), draw_refusals(3) == draw_refusals(3)
        (True, True)
    """
    return random.Random(seed).choices(REFUSALS, k=n)


@dataclass(frozen=True)
class IdkDpoSettings(NpoSettings):
    """A preference for refusals over the forget records, both measured from the original model."""


def make_objective(original: Module, settings: IdkDpoSettings) -> Objective:
    """Mean over records of -(2/beta) log sigmoid(beta (rise of NLL(forget) - rise of NLL(refusal))) + w NLL(retain)."""
    from ruler.unlearning.language.losses import compute_record_losses

    def measure(model: Module, forget: Batch) -> Tensor:
        return compute_record_losses(model, forget) - compute_record_losses(model, forget[2])

    return prefer(original, settings, measure)


IDK_DPO = Method(
    title="IdkDPO",
    colour="#999933",
    settings=IdkDpoSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="preferences",
    formula="-(2/beta) log sigmoid(beta (rise of NLL(forget) - rise of NLL(refusal))) + NLL(retain)",
    source="Maini et al. 2024; Rafailov et al. 2023; open-unlearning",
    grid={"learning_rate": (1e-5, 2e-5, 5e-5)},
)
