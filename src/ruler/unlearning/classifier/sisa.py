"""SISA (Bourtoule et al., 2021), with one shard: training in slices, repeated from the first slice that changes.

More shards are more models, each trained on its own share of the records, whose votes are counted. Such an ensemble has
no representations that could be set beside those of one oracle, so it cannot be audited as one model.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ruler.unlearning.classifier.retrain import RetrainSettings
from ruler.unlearning.method import Method, Module, Plan, Records, count


@dataclass(frozen=True)
class SisaSettings(RetrainSettings):
    """Give the settings that the original was trained with; all slices together pass as many records as it did.

    Args:
        n_slices: Training starts with the first slice of the records and takes in one more at a time.
    """

    n_slices: int = count(5)


def make_plan(student: Module, records: Records, settings: SisaSettings) -> Iterator[Plan]:
    """CE(retain records of slices 1 to r) for r = 1, 2, ..., from weights that the seed draws.

    Exact: no weight depends on a forget record. The slices before the first one with a forget record would be stored
    checkpoints of an original that was trained so; the given model was not, so that they are trained too.
    """
    import torch

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import gather_pair
    from ruler.unlearning.distillation import make_random_teacher

    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    n_forget, n_all = len(forget[1]), len(forget[1]) + len(retain[1])
    order = torch.randperm(n_all, generator=torch.Generator().manual_seed(settings.seed))
    student.load_state_dict(make_random_teacher(student, settings.seed).state_dict())
    n_epochs = max(1, round(2 * settings.epochs / (settings.n_slices + 1)))
    for number in range(settings.n_slices):
        so_far = order[: round((number + 1) * n_all / settings.n_slices)]
        rows = (so_far[so_far >= n_forget] - n_forget).to(retain[1].device)
        if len(rows) > 1 or len(rows) == len(retain[1]):  # batch norm cannot be trained on a single record
            stage = replace(settings, epochs=n_epochs, seed=settings.seed + number)
            yield Plan(cross_entropy, {"retain": (retain[0][rows], retain[1][rows])}, settings=stage)


SISA = Method(
    title="SISA",
    colour="#555555",
    settings=SisaSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), in slices that are taken in one by one, all weights drawn anew",
    source="Bourtoule et al. 2021; an exact baseline",
    grid={"n_slices": (2, 5, 10)},
    trains_anew=True,
)
