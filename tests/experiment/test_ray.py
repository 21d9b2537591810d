"""Retries are counted by cell and by node."""

import importlib
from typing import Any

import pytest

from ruler.core import __version__
from ruler.core.cluster import ClusterSettings
from ruler.core.errors import InputError, MissingPackageError
from ruler.experiment.cell import Workplace
from ruler.experiment.executors.ray import MOST_LOST_NODES, Trip, check_version, run_ray
from ruler.experiment.executors.worker import MOST_DEATHS
from ruler.experiment.grid import Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import Provenance

STUDY = StudySettings("own", ("breast_cancer",), ("gradient_ascent", "scrub", "fine_tuning"), (0.05,), (0,))


@pytest.fixture
def trip() -> Trip:
    (job,) = group_jobs(list_cells(STUDY))
    return Trip(job)


def test_a_cell_is_given_up_after_three_deaths_and_the_rest_of_its_job_gets_another_chance(trip: Trip) -> None:
    first, second, third = trip.job.cells
    assert [trip.give_up(is_node_lost=False) for _ in range(MOST_DEATHS)] == [(), (), (first,)]
    assert trip.job.cells == (second, third)
    trip.tick_off(second)
    assert [trip.give_up(is_node_lost=False) for _ in range(MOST_DEATHS)] == [(), (), (third,)]
    assert trip.job.cells == ()


def test_a_job_that_kills_whoever_touches_it_is_given_up_whole(trip: Trip) -> None:
    cells = trip.job.cells
    given_up = [trip.give_up(is_node_lost=False) for _ in range(MOST_DEATHS + 1)]
    assert given_up[-2:] == [cells[:1], cells[1:]]
    assert trip.job.cells == ()


def test_lost_nodes_are_not_held_against_a_job_for_long(trip: Trip) -> None:
    cells = trip.job.cells
    for _ in range(3):
        for _ in range(MOST_LOST_NODES - 1):
            assert trip.give_up(is_node_lost=True) == ()
        trip.tick_off(trip.job.cells[0])
        trip.job = Job(cells)
    for _ in range(MOST_LOST_NODES - 1):
        trip.give_up(is_node_lost=True)
    assert trip.give_up(is_node_lost=True) == cells


def test_all_nodes_must_have_the_same_version() -> None:
    made_by = Provenance(device="cpu", ruler_version=__version__, commit=None, torch_version="2", machine="this")
    assert check_version(made_by) is made_by
    with pytest.raises(InputError, match=f"ruler must be version {__version__} on every node; got 0.0.1 on a node"):
        check_version(Provenance("cpu", "0.0.1", None, "2", "that"))


def test_without_ray_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", find_none)
    with pytest.raises(MissingPackageError, match=r'executor ray needs .* pip install "ruler-audit\[cluster\]"'):
        run_ray((), Workplace(), None, settings=ClusterSettings(), n_cores=1)  # type: ignore[arg-type]
