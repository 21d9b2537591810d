"""Several devices of one machine: `find_neighbors(device="cuda:all")` or `device="cuda:0,cuda:1"`."""

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import Neighbors
from ruler.neighbors.blocks import Workers, find_neighbors_by_blocks, over_devices
from ruler.neighbors.engines import Request


class DevicesEngine:
    """Cuts a search into pairs of blocks that the devices take as they become free."""

    def is_usable_for(self, request: Request) -> bool:
        """Whether the caller named several devices."""
        return request.device is not None and ("," in request.device or request.device.strip().endswith(":all"))

    def search(self, request: Request) -> Neighbors:
        """As `find_neighbors`; each device holds two blocks of at most a million rows."""
        devices = list_devices(str(request.device))
        queries, base = request.read_matrices()
        return find_neighbors_by_blocks(
            queries,
            base,
            k=request.k,
            exclude_self=request.exclude_self,
            run=over_devices(devices),
            workers=Workers(len(devices), None if devices[0].startswith("cpu") else devices[0]),
        )


def list_devices(device: str) -> list[str]:
    """The devices that a name stands for.

    Raises:
        InputError: ``:all`` where there is none of that kind, or a list with nothing or ``:all`` between its commas.

    Example:
        >>> list_devices("cuda:0, cuda:1"), list_devices("cpu")
        (['cuda:0', 'cuda:1'], ['cpu'])
    """
    devices = [one.strip() for one in device.split(",")]
    if not all(devices) or (len(devices) > 1 and any(one.endswith(":all") for one in devices)):
        raise InputError(f"device must name single devices between commas, such as 'cuda:0,cuda:1'; got {device!r}.")
    if not devices[0].endswith(":all"):
        return devices
    torch = load_optional("torch", "searching on accelerators")
    count = torch.cuda.device_count() if devices[0] == "cuda:all" else 0
    if not count:
        raise InputError(f"device must be on this machine; got {device!r} and no such device. Use 'cpu'.")
    return [f"cuda:{number}" for number in range(count)]
