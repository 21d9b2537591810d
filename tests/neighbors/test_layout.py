"""Rows by cluster: every row once, and no tile ruled out that holds an answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.neighbors.reference import row_sets, unit

from ruler.neighbors.layout import Layout, choose_sample, find_clusters, find_needed, measure_reach


@given(
    cluster_of=st.lists(st.integers(0, 6), min_size=1, max_size=2000),
    tile_rows=st.sampled_from([128, 256, 1024]),
    has_cells=st.booleans(),
)
@settings(max_examples=40)
def test_each_row_is_in_one_tile_of_its_cluster(cluster_of, tile_rows, has_cells):
    cluster_of = np.array(cluster_of)
    layout = Layout.group(cluster_of, tile_rows, np.arange(len(cluster_of)) % 5 if has_cells else None)
    seen = []
    for tile, cluster in enumerate(layout.clusters):
        start, stop = layout.span(tile)
        rows = layout.numbers(np.arange(start, stop))
        assert 0 < len(rows) <= tile_rows
        assert (cluster_of[rows] == cluster).all()
        blocks = range(layout.first_block(tile), layout.first_block(tile) - (-len(rows) // 128))
        assert all((np.diff(layout.rows_of_block(block)) > 0).all() for block in blocks)
        np.testing.assert_array_equal(np.concatenate([layout.rows_of_block(block) for block in blocks]), rows)
        seen.append(rows)
    assert sorted(np.concatenate(seen)) == list(range(len(cluster_of)))


def test_rows_of_one_cell_share_sub_blocks():
    cell_of = np.arange(1280) % 10
    layout = Layout.group(np.zeros(1280, dtype=np.int64), 512, cell_of)
    blocks = [layout.first_block(tile) + place for tile in range(len(layout)) for place in range(3)]
    held = [len(np.unique(cell_of[layout.rows_of_block(block)])) for block in blocks]
    assert max(held) <= 2


def test_rows_as_they_stand_are_cut_into_tiles():
    layout = Layout.plain(300, 128)
    assert [layout.span(tile) for tile in range(len(layout))] == [(0, 128), (128, 256), (256, 300)]
    assert layout.rows_of_block(2).tolist() == list(range(256, 300))


@pytest.mark.parametrize("n_classes", [1, 10, 40])
def test_clusters_that_lie_apart_are_found(n_classes, random):
    centres = unit(random.normal(size=(n_classes, 32)))
    rows = centres[random.integers(0, n_classes, 5000)] + 1e-4 * random.normal(size=(5000, 32))
    found = find_clusters(unit(rows)[choose_sample(len(rows))], 64, 1)
    assert found.spread < 1e-5
    assert found.needed < 1.5 / n_classes
    distances = np.linalg.norm(centres[:, None] - found.centres, axis=2)
    assert distances.min(axis=1).max() < 1e-2


def test_noise_has_no_clusters(random):
    assert find_clusters(unit(random.normal(size=(1000, 64))), 16, 1).spread > 0.8


def test_a_sample_spans_all_rows_and_stays_small():
    assert choose_sample(50).tolist() == list(range(50))
    assert len(choose_sample(20_000)) == 1250
    assert len(choose_sample(10**7)) == 2048
    assert choose_sample(10**7)[[0, -1]].tolist() == [0, 10**7 - 1]


@given(rows=row_sets(min_rows=20), n_tiles=st.integers(1, 6), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_a_tile_that_holds_the_best_row_is_needed(rows, n_tiles, seed):
    rows = unit(rows)
    rows = rows[rows.any(axis=1)]
    tiles = [tile for tile in np.array_split(np.random.default_rng(seed).permutation(len(rows)), n_tiles) if len(tile)]
    if not tiles:
        return
    directions = unit(np.stack([rows[tile[0]] + 0.1 for tile in tiles]))
    cosines = rows @ directions.T
    reach = np.array([measure_reach(cosines[tile, i]) for i, tile in enumerate(tiles)])
    products = rows @ rows.T
    best = products.max(axis=1)
    for query, value in enumerate(best):
        needed = find_needed(cosines[[query]], np.array([value - 1e-13]), reach)
        assert all(needed[i] for i, tile in enumerate(tiles) if products[query, tile].max() == value)


def test_tiles_far_from_all_queries_are_not_needed():
    cosines = np.cos(np.deg2rad([[10.0, 90.0]]))
    reach = np.deg2rad([5.0, 30.0])
    assert find_needed(cosines, np.array([np.cos(np.deg2rad(20.0))]), reach).tolist() == [True, False]
