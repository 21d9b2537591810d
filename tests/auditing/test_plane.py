"""The layer in two dimensions: principal components, drawn from few records however many there are."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import QUICK

from ruler.auditing import audit, gather_evidence
from ruler.auditing.plane import MOST_PER_SIDE, draw_plane, find_components


def make_rows(n, p, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) * np.r_[3.0, 2.0, np.full(p - 2, 0.3)] + 1.0


@pytest.mark.parametrize("shape", [(60, 5), (12, 40)])  # more rows than columns, and fewer
def test_places_are_those_of_a_singular_value_decomposition(shape):
    rows = make_rows(*shape)
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    expected = left[:, :2] * values[:2] / (values[0] / np.sqrt(len(rows)))
    places, shares = find_components(rows.copy())
    np.testing.assert_allclose(np.abs(places), np.abs(expected), atol=1e-4)
    np.testing.assert_allclose(shares, values[:2] ** 2 / (values**2).sum(), atol=1e-4)
    assert (places[np.abs(places).argmax(axis=0), [0, 1]] > 0).all()


@pytest.mark.parametrize("shape", [(60, 5), (12, 40)])
def test_turning_scaling_or_moving_all_rows_changes_nothing(shape):
    rows = make_rows(*shape)
    turn = ortho_group.rvs(shape[1], random_state=1)
    places, shares = find_components(rows.copy())
    for other in (rows @ turn, 1e-200 * rows, 1e200 * rows, rows - 7.0):
        np.testing.assert_allclose(find_components(other)[0], places, atol=1.1e-4)
        assert find_components(other)[1] == pytest.approx(shares, abs=1.1e-4)


def test_what_has_no_two_dimensions_has_no_plane():
    assert find_components(np.arange(5.0)[:, None]) is None
    assert find_components(np.zeros((5, 3))) is None
    assert find_components(np.full((5, 3), 0.1)) is None
    line = np.outer([-1.0, 0.0, 2.0], [1.0, 2.0, 3.0])
    places, shares = find_components(line)
    assert places[:, 1].tolist() == [0.0, 0.0, 0.0]
    assert shares == (1.0, 0.0)


def test_few_records_are_drawn_however_many_there_are():
    rows = tuple(make_rows(n, 6, seed=n) for n in (30, 900, 400))
    first = draw_plane(gather_evidence(rows, settings=QUICK))
    assert {side: len(places) for side, places in first.points.items()} == {
        "forget": 30,
        "retain": MOST_PER_SIDE,
        "held_out": MOST_PER_SIDE,
    }
    again = draw_plane(gather_evidence(tuple(part[::-1] for part in rows), settings=QUICK))  # order follows content
    for side, places in first.points.items():
        np.testing.assert_array_equal(places, again.points[side])
    few = draw_plane(gather_evidence(rows, settings=replace(QUICK, n_plotted=10)))
    assert {len(places) for places in few.points.values()} == {10}
    wide = draw_plane(gather_evidence(tuple(make_rows(n, 1 << 17, seed=n) for n in (20, 30, 20)), settings=QUICK))
    assert {len(places) for places in wide.points.values()} == {16}


def test_a_report_keeps_it(tmp_path):
    report = audit(tuple(make_rows(n, 6, seed=n) for n in (30, 60, 40)), settings=QUICK)
    kept = type(report).load(report.save(tmp_path / "report")).distributions.plane
    drawn = report.distributions.plane
    assert (kept.layer, kept.shares) == (drawn.layer, drawn.shares)
    for side, places in drawn.points.items():
        np.testing.assert_array_equal(kept.points[side], places)
