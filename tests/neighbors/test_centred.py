"""Products relative to centres enclose the true ones, and give the answer of every other arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ruler.neighbors import cpu, find_neighbors, first_pass
from ruler.neighbors.centred import CentredArithmetic
from ruler.neighbors.cpu import CENTRED_TYPES, CpuEngine, search_both
from ruler.neighbors.engines import Request
from ruler.neighbors.first_pass import Plan, Problem, Shortlist, scan
from ruler.neighbors.layout import Layout
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.tiles import NumpyArithmetic
from ruler.testing.engines import KINDS

torch = pytest.importorskip("torch")
EXACT = CpuEngine(NumpyArithmetic(np.float64))


def assert_same(found, expected):
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


def make_embeddings(random, n_rows):
    """Representations of a small network, trained until its classes are tight."""
    labels = torch.from_numpy(random.integers(0, 4, n_rows))
    inputs = torch.from_numpy(random.normal(size=(4, 8))[labels] + 0.3 * random.normal(size=(n_rows, 8))).float()
    torch.manual_seed(0)
    body, head = (
        torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 16)),
        torch.nn.Linear(16, 4),
    )
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(body(inputs)), labels).backward()
        optimizer.step()
    return body(inputs).detach().numpy()


def make_rows(kind, random, n_rows=1500, width=12):
    return make_embeddings(random, n_rows) if kind == "embeddings" else KINDS[kind](random, n_rows, width)


@pytest.mark.parametrize("kind", [*sorted(KINDS), "embeddings"])
@pytest.mark.parametrize("dtype", CENTRED_TYPES)
def test_all_kinds_of_rows_get_the_exact_answer(kind, dtype, random, monkeypatch):
    for module in (first_pass, cpu):
        monkeypatch.setattr(module, "TILE_ROWS", 256)
    rows = make_rows(kind, random)
    engine = CpuEngine(centred=dtype)
    for k in (1, 3):
        for request in (Request(rows, rows, k, True), Request(rows[:700], rows[500:], k)):
            assert_same(engine.search(request), EXACT.search(request))


@pytest.mark.parametrize("kind", ["clustered", "low_rank", "rounded", "embeddings"])
def test_the_pilot_may_choose_it(kind, random, monkeypatch):
    for module in (first_pass, cpu):
        monkeypatch.setattr(module, "TILE_ROWS", 256)
    monkeypatch.setattr(cpu, "FEWEST_CENTRED_ROWS", 2000)
    rows = make_rows(kind, random, 2250)
    assert_same(find_neighbors(rows, rows, exclude_self=True), EXACT.search(Request(rows, rows, 1, True)))
    ours, theirs = search_both(rows[:100], rows[100:], k=2)
    assert_same(ours, EXACT.search(Request(rows[:100], rows[100:], 2)))
    assert_same(theirs, EXACT.search(Request(rows[100:], rows[:100], 2)))


@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(CENTRED_TYPES),
    apart=st.floats(0, 2),
    spreads=st.tuples(st.floats(-9, 0), st.floats(-9, 0)),
    has_zero=st.booleans(),
)
@settings(max_examples=80)
def test_bounds_enclose_the_largest_similarity(seed, dtype, apart, spreads, has_zero):
    random = np.random.default_rng(seed)
    centres = random.normal(size=6) + apart * random.normal(size=(2, 6))
    tiles = []
    for centre, spread, n_rows in zip(centres, spreads, (150, 270), strict=True):
        rows = centre + 10.0**spread * random.normal(size=(n_rows, 6))
        tiles.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    if has_zero:
        tiles[1][3] = 0.0
    arithmetic = CentredArithmetic(torch, dtype, np.stack([tile.mean(axis=0) for tile in tiles]))
    stored = [arithmetic.make_tile(tile, cluster=i) for i, tile in enumerate(tiles)]
    for i, j in ((0, 1), (1, 0), (0, 0), (1, 1)):
        both = arithmetic.multiply(stored[i], stored[j], is_diagonal=i == j, both_sides=True)
        products = tiles[i] @ tiles[j].T
        if i == j:
            np.fill_diagonal(products, -np.inf)
        for maxima, true in zip(both, (products, products.T), strict=True):
            blocks = np.maximum.reduceat(true, np.arange(0, true.shape[1], 128), axis=1)
            assert (maxima.lower <= blocks + 1e-15).all()
            assert (maxima.upper >= blocks - 1e-15).all()


def test_bounds_of_close_rows_are_close(random):
    rows = np.ones(16) + 1e-4 * random.normal(size=(256, 16))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    arithmetic = CentredArithmetic(torch, "bfloat16", rows.mean(axis=0, keepdims=True))
    tile = arithmetic.make_tile(rows)
    maxima, _ = arithmetic.multiply(tile, tile, is_diagonal=True, both_sides=False)
    distance = 1.0 - (maxima.upper + maxima.lower) / 2
    assert (maxima.upper - maxima.lower < 0.1 * distance).all()


def test_clusters_that_lie_apart_are_not_multiplied(random, monkeypatch):
    monkeypatch.setattr(first_pass, "TILE_ROWS", 128)
    cluster_of = np.repeat(np.arange(4), 256)
    rows = UnitRows.read(np.eye(8)[cluster_of] + 0.01 * random.normal(size=(1024, 8)), "rows")
    layout = Layout.group(cluster_of, 128)
    multiplied = []

    class Counting(CentredArithmetic):
        def multiply(self, a, b, **options):
            multiplied.append((a.cluster, b.cluster))
            return super().multiply(a, b, **options)

    plan = Plan(Counting(torch, "bfloat16", np.eye(4, 8)), layout, layout)
    n_done = []
    for _ in scan(Problem(rows, rows, 1, True), plan, Shortlist(1024, 1), map, on_done=n_done.append):
        pass
    assert len(multiplied) == 4 * 3
    assert all(ours == theirs for ours, theirs in multiplied)
    assert sum(n_done) == 8 * 9 // 2
