"""Steps of the optimiser as CUDA graphs: captured once, then replayed by a single launch.

A step of a small model is hundreds of short kernels, and a GPU waits longer for their launches than it computes.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from ruler.training.batches import Batch, Batches, map_tensors
from ruler.training.steps import Step

Function = Callable[[], torch.Tensor]

Capture = Callable[[Function, Callable[[], None], torch.device], Function]
"""(step, function that undoes it, device) -> function that repeats the step; when it returns, no step was taken."""

_MAX_GRAPHS = 4
_N_RARE = 2  # a shape that is met more often than this gets a graph of its own, as the first does at once
_N_WARM_UP = 2  # lazy initialisation and the choice of algorithms must be over before a capture

_failed: list[torch.cuda.CUDAGraph] = []  # kept: the allocator may still point to a graph whose capture failed


def can_capture(parameters: list[nn.Parameter], streams: list[Batches]) -> bool:
    """Whether model and records lie on one CUDA device, so that a step needs nothing from the host."""
    devices = {parameter.device for parameter in parameters}
    is_on_cuda = len(devices) == 1 and all(device.type == "cuda" for device in devices)
    are_real = all(parameter.is_floating_point() for parameter in parameters)
    return is_on_cuda and are_real and all(stream.is_resident for stream in streams)


class CapturedStep:
    """A step that is replayed for batches of a shape that it knows, and taken as it is for others.

    Where a step cannot be captured (it waits for the device, or draws random numbers on the host), every step is
    taken as it is: slower, with the same result.

    Args:
        step: The step; the objective in it must depend on the model and the batches alone.
        capture: A ``GraphCapture``.
    """

    def __init__(self, step: Step, capture: Capture) -> None:
        self._step, self._capture = step, capture
        self._met: Counter[Any] = Counter()
        self._recorded: dict[Any, Callable[[Batch], torch.Tensor]] = {}
        self._is_possible = True

    def __call__(self, batches: tuple[Batch, ...]) -> torch.Tensor:
        """Take the step; the loss before it, valid until the next one."""
        kind = tuple((tensor.shape, tensor.dtype) for tensor in _list_tensors(batches))
        if kind not in self._recorded:
            self._met[kind] += 1
            is_common = not self._recorded or self._met[kind] > _N_RARE
            if self._is_possible and is_common and len(self._recorded) < _MAX_GRAPHS:
                self._record(kind, batches)
        return self._recorded.get(kind, self._step)(batches)

    def close(self) -> None:
        """Drop all graphs and give their memory back to the device, where other processes may need it."""
        self._recorded.clear()
        torch.cuda.empty_cache()

    def _record(self, kind: Any, batches: tuple[Batch, ...]) -> None:
        held = map_tensors(torch.clone, batches)
        places = _list_tensors(held)
        before = _Snapshot(self._step)
        try:
            replay = self._capture(lambda: self._step(held), before.restore, self._step.device)
        except RuntimeError:  # an error that is not the capture's own comes again when the step is taken as it is
            self._is_possible = False
            before.restore(is_strict=False)
            return

        def replay_with(batches: tuple[Batch, ...]) -> torch.Tensor:
            for place, tensor in zip(places, _list_tensors(batches), strict=True):
                place.copy_(tensor)
            return replay()

        self._recorded[kind] = replay_with


class GraphCapture:
    """Captures the steps of one training into CUDA graphs, which share their memory: one of them runs at a time."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, step: Function, undo: Callable[[], None], device: torch.device) -> Function:
        """Warm a step up on a side stream, undo that, and capture it.

        Raises:
            RuntimeError: The step cannot be captured; the device's streams are as before.
        """
        with torch.cuda.device(device):
            if self._stream is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            current, stream = torch.cuda.current_stream(), self._stream
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(_N_WARM_UP if self._pool is None else 1):  # later shapes find handles and state made
                    step()
            current.wait_stream(stream)
            undo()
            graph = torch.cuda.CUDAGraph()
            try:
                # Only this thread is held to the rules of a capture: others may train models of their own meanwhile.
                with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                    loss = step()
            except RuntimeError:
                # A capture that breaks off leaves its stream in use and the generator waiting for its end.
                _failed.append(graph)
                torch.cuda.set_stream(current)
                generator = torch.cuda.default_generators[torch.cuda.current_device()]
                generator.graphsafe_set_state(generator.clone_state())
                raise
        self._pool = graph.pool()

        def replay() -> torch.Tensor:
            graph.replay()
            return loss

        return replay


class _Snapshot:
    """The state of model, optimiser and random streams, which can be restored in place."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._values = [(tensor, tensor.detach().clone()) for tensor in self._list_all()]
        self._host = _read_host_streams()
        self._on_device = torch.cuda.get_rng_state(step.device) if step.device.type == "cuda" else None

    def _list_all(self) -> Iterator[torch.Tensor]:
        yield from self._step.model.parameters()
        yield from self._step.model.buffers()
        for state in self._step.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    @torch.no_grad()
    def restore(self, *, is_strict: bool = True) -> None:
        """Put everything back; state that the optimiser has made since becomes zero, as it starts.

        Raises:
            RuntimeError: Random numbers were drawn on the host since, which a graph would freeze (if strict).
        """
        self._step.optimizer.zero_grad(set_to_none=True)
        known = {id(tensor) for tensor, _ in self._values}
        for tensor, value in self._values:
            tensor.copy_(value)
        for tensor in self._list_all():
            if id(tensor) not in known:
                tensor.zero_()
        if self._on_device is not None:
            torch.cuda.set_rng_state(self._on_device, self._step.device)
        has_drawn = _read_host_streams() != self._host
        _set_host_streams(self._host)
        if has_drawn and is_strict:
            raise RuntimeError("a step that draws random numbers on the host cannot be captured")


def _read_host_streams() -> tuple[bytes, Any, Any]:
    state: Any = np.random.get_state()
    kind, keys, *rest = state
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), (kind, keys.tobytes(), *rest)


def _set_host_streams(streams: tuple[bytes, Any, Any]) -> None:
    kind, keys, *rest = streams[2]
    torch.set_rng_state(torch.frombuffer(bytearray(streams[0]), dtype=torch.uint8))
    random.setstate(streams[1])
    np.random.set_state((kind, np.frombuffer(keys, dtype=np.uint32), *rest))


def _list_tensors(batch: Batch) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    map_tensors(tensors.append, batch)
    return tensors
