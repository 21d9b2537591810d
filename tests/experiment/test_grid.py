"""The grid is pure: the right cells, each once, in jobs that share models."""

from dataclasses import asdict, fields, replace

import pytest

from ruler.experiment.grid import Cell, Job, group_jobs, list_cells, subtract
from ruler.experiment.studies import BEYOND_PAPER, STUDIES, choose_studies

COUNTS = {
    "primary": 10 * 3 * 10 * (4 + 2),
    "bad-teacher": 10 * 3 * 10 * 3,
    "oracle-null": 10 * 45,
    "minibatch": 10 * 5 * (4 + 2),
    "learning-rate": 10 * 10 * 4 * 3,
    "forget-seeds": 10 * 3 * 5 * 5 * 4,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_studies_have_the_papers_cells_each_once(name: str, count: int) -> None:
    cells = list_cells(STUDIES[name])
    assert len(cells) == count
    assert len({cell.key for cell in cells}) == count
    assert cells == list_cells(STUDIES[name])


def test_pairs_are_of_different_seeds_and_unordered() -> None:
    pairs = [(c.seed, c.other_seed) for c in list_cells(STUDIES["oracle-null"]) if c.dataset == "adult"]
    assert len(pairs) == 45
    assert all(seed < other for seed, other in pairs)  # type: ignore[operator]


def test_only_bad_teacher_has_teacher_seeds() -> None:
    mixed = replace(STUDIES["bad-teacher"], methods=("scrub", "bad_teacher"))
    teachers = {(cell.method, cell.teacher_seed) for cell in list_cells(mixed)}
    assert teachers == {("scrub", None), *(("bad_teacher", seed) for seed in (100, 101, 102))}


def test_groups_that_are_not_drawn_have_the_same_cells_whatever_fractions_a_run_takes() -> None:
    def find_chosen(*fractions: float) -> set[str]:
        cells = list_cells(replace(STUDIES["faces"], forget_fractions=fractions))
        assert {cell.forget_fraction for cell in cells if cell.forget_choice == "random"} == set(fractions)
        return {cell.key for cell in cells if cell.forget_choice != "random"}

    whole = {cell.key for cell in list_cells(STUDIES["faces"]) if cell.forget_choice != "random"}
    assert find_chosen(0.05) == find_chosen(0.01, 0.2) == whole
    assert len(whole) == 3 * 2 * 5  # choices, original and oracle, seeds


def test_every_field_is_part_of_the_key() -> None:
    cell = Cell("primary", "adult", "scrub", 0.05, 0, 5e-4)
    changed: dict[str, object] = dict.fromkeys(asdict(cell), "other") | dict.fromkeys(
        ("forget_fraction", "seed", "learning_rate", "batch_size", "forget_seed", "teacher_seed", "other_seed"), 7
    )
    keys = {replace(cell, **{field.name: changed[field.name]}).key for field in fields(cell)}  # type: ignore[arg-type]
    assert len(keys | {cell.key}) == len(fields(cell)) + 1


def test_keys_stay_the_same_between_versions() -> None:
    """Changing this key makes every results file start over: raise CELL_VERSION only when numbers can move."""
    assert Cell("primary", "adult", "scrub", 0.05, 0, 5e-4).key[:16] == "3f47b8862417bc29"


def test_jobs_hold_every_cell_once_and_share_an_original() -> None:
    cells = [cell for study in choose_studies("all") for cell in list_cells(study)]
    jobs = group_jobs(cells)
    assert sorted(cell.key for job in jobs for cell in job.cells) == sorted(cell.key for cell in cells)
    for job in jobs:
        assert len({(cell.study, cell.dataset) for cell in job.cells}) == 1
        if job.cells[0].other_seed is None:
            assert len({cell.seed for cell in job.cells}) == 1
            assert len({cell.forget_seed for cell in job.cells}) == (5 if job.cells[0].study == "forget-seeds" else 1)


def test_studies_keep_their_order_and_each_starts_with_its_longest_job() -> None:
    jobs = group_jobs([cell for study in choose_studies("all") for cell in list_cells(study)])
    names = [job.cells[0].study for job in jobs]
    assert list(dict.fromkeys(names)) == [name for name in STUDIES if name not in BEYOND_PAPER]
    assert names == sorted(names, key=list(STUDIES).index)
    costs = [job.cost for job in jobs if job.cells[0].study == "primary"]
    assert costs == sorted(costs, reverse=True)


def test_an_ensemble_takes_a_dataset_at_once_on_a_gpu_and_a_seed_on_a_cpu() -> None:
    study = replace(STUDIES["primary"], forget_seeds=(999, 1000))
    alone = group_jobs(list_cells(study))
    assert {len({(cell.dataset, cell.seed) for cell in job.cells}) for job in alone} == {1}
    assert len(alone) == len(study.datasets) * len(study.seeds)
    jobs = group_jobs(list_cells(study), device="cuda")
    assert len(jobs) == 10
    assert jobs[0].name == "primary diabetes130 10 seeds"


def test_jobs_do_not_depend_on_the_order_of_cells_within_a_study() -> None:
    cells = list_cells(STUDIES["minibatch"])
    there, back = ({frozenset(job.cells) for job in group_jobs(some)} for some in (cells, cells[::-1]))
    assert there == back


def test_fractions_of_a_language_model_are_jobs_of_their_own_the_largest_first() -> None:
    jobs = group_jobs(list_cells(replace(STUDIES["tofu"], seeds=(0,), datasets=("tofu",))))
    assert [{cell.forget_fraction for cell in job.cells} for job in jobs] == [{0.10}, {0.05}, {0.01}]
    assert all(len(job.cells) == 22 for job in jobs)


def test_resume_is_grid_minus_store() -> None:
    cells = list_cells(STUDIES["minibatch"])
    finished = {cell.key for cell in cells[::3]} | {"some other key"}
    assert subtract(cells, finished) == tuple(cell for i, cell in enumerate(cells) if i % 3)


def test_a_job_with_more_models_costs_more() -> None:
    cells = list_cells(STUDIES["primary"])[:18]
    assert Job(cells).cost > Job(cells[:6]).cost


def test_oracles_of_a_diagnostic_study_are_paired_on_each_of_its_models() -> None:
    study = replace(STUDIES["images"], methods=(), seeds=(0, 1, 2), compares_oracles=True)
    cells = list_cells(study)
    assert len(cells) == 3 * 2 * 3
    assert {(cell.precision, cell.size, cell.engine) for cell in cells} == {("float32", "full", "diagnostic")}
    assert len(group_jobs(cells)) == 3 * 2  # whose oracles serve all their pairs
