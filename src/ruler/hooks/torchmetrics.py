"""M4 as a metric of torchmetrics."""

from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.metrics import m4

load_optional("torchmetrics", "PercentileRank as a metric")

import torch  # noqa: E402  the line above names the extra if it is missing
from torchmetrics import Metric  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor


class PercentileRank(Metric):  # type: ignore[misc,unused-ignore]
    """Where do forget records rank among retain records by their nearest retain record? `ruler.m4`, batch by batch.

    All rows are kept until `compute`, and gathered from all processes: M4 ranks every record among all retain records.
    The value is a float64 scalar in [0, 1], equal to `ruler.m4` of the same rows; NaN where there is no forget record
    or fewer than two retain records, as ``forward`` may find in a single batch.

    Args:
        **kwargs: As every metric of torchmetrics, such as ``compute_on_cpu=True``, which keeps rows off the GPU.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    forget: "list[Tensor]"
    retain: "list[Tensor]"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("forget", default=[], dist_reduce_fx="cat")
        self.add_state("retain", default=[], dist_reduce_fx="cat")

    def update(self, embeddings: "Tensor", is_forget: "Tensor") -> None:
        """Add a batch.

        Args:
            embeddings: (n, p) of the model.
            is_forget: (n,), true for forget and false for retain records.

        Raises:
            InputError: Other shapes.
        """
        if embeddings.ndim != 2 or is_forget.shape != embeddings.shape[:1]:
            raise InputError(
                "embeddings must be (n, p) and is_forget (n,); got "
                f"{tuple(embeddings.shape)} and {tuple(is_forget.shape)}. Flatten further dimensions."
            )
        rows = embeddings.detach()
        rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
        is_forget = is_forget.bool()
        self.forget.append(rows[is_forget])
        self.retain.append(rows[~is_forget])

    def compute(self) -> "Tensor":
        """M4 of all batches so far."""
        forget, retain = (_join(rows) for rows in (self.forget, self.retain))
        is_known = len(forget) >= 1 and len(retain) >= 2
        return torch.tensor(m4(forget, retain) if is_known else float("nan"), dtype=torch.float64)


def _join(rows: "Tensor | list[Tensor]") -> "Tensor":
    """The rows of all batches on the CPU; after a synchronisation they are one tensor already."""
    parts = [rows] if isinstance(rows, torch.Tensor) else rows
    return torch.cat(parts).cpu() if parts else torch.empty(0, 1)
