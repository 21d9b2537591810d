"""Which rows of a tensor are identical, found without leaving the device."""

from typing import Any

from ruler.core.arithmetic import iterate_blocks
from ruler.neighbors.cuda.pairs import rows_for
from ruler.neighbors.rows import Groups


def group_on_device(rows: Any) -> Groups | None:
    """`group_identical` for `DeviceRows`: None when all rows differ, the common case."""
    torch = rows.torch
    spans = iterate_blocks(len(rows), rows_for(rows.width))
    hashes, order = torch.cat([rows.hash(*span) for span in spans]).sort(stable=True)  # equal ones stay in row order
    starts_run = torch.ones(len(order), dtype=torch.bool, device=order.device)
    starts_run[1:] = hashes[1:] != hashes[:-1]
    if bool(starts_run.all()):
        return None
    leader = torch.empty_like(order)
    leader[order] = order[starts_run][starts_run.cumsum(0) - 1]
    followers = torch.nonzero(leader != torch.arange(len(order), device=order.device))[:, 0]
    for index in followers.split(rows_for(rows.width) // 2):  # a hash proposes, the rows decide
        differs = (rows.take(index) != rows.take(leader[index])).any(1)
        leader[index[differs]] = index[differs]
    first, group_of = torch.unique(leader, return_inverse=True)
    if len(first) == len(order):
        return None
    members = group_of.argsort(stable=True)
    offsets = torch.searchsorted(group_of[members], torch.arange(len(first) + 1, device=order.device))
    return Groups(*(part.cpu().numpy() for part in (first, group_of, members, offsets)))
