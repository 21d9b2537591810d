"""A stand-in for a connected Ray: does tasks at once, in this process, and keeps what it was asked."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class WorkerCrashedError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(f"traceback of {cause}")
        self.cause = cause


class FakeRay:
    """Tasks are done when their result is fetched, on the CPU whatever their device; or end with ``failure``."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *nodes: dict[str, float], failure: Exception | None = None) -> None:
        self._nodes: Sequence[dict[str, float]] = nodes or ({"CPU": 2.0},)
        self.failure = failure
        self.n_put, self.most_under_way = 0, 0
        self.asked: list[dict[str, Any]] = []
        self.pairs: list[Any] = []
        self.n_threads: set[int] = set()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": node} for node in self._nodes] + [{"Alive": False, "Resources": {}}]

    def put(self, value: Any) -> tuple[str, Any]:
        self.n_put += 1
        return ("put", value)

    def remote(self, function: Any) -> Any:
        def start(work: Any, pair: Any, n_threads: int, *matrices: tuple[str, Any]) -> Any:
            self.pairs.append(pair)
            self.n_threads.add(n_threads)
            return partial(function, work, replace(pair, device=None), 1, *(value for _, value in matrices))

        def ask(**options: Any) -> Any:
            self.asked.append(options)
            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=ask)

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        self.most_under_way = max(self.most_under_way, len(references))
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        return reference()
