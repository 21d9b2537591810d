"""Triton kernels: tile products that name, without leaving the chip, the pairs a search must look at again.

A tile of products stays in registers. It is held against one bar a row (and a column, where a set is searched in
itself, so that half of the tiles do); only pairs that reach a bar are written, which a third of the tiles or fewer do.
"""

# Triton reads these functions rather than Python: no types but constexpr, which it writes in capitals.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-not-found"
# ruff: noqa: N803
from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # torch for CPU brings no Triton; nobody calls these then
    triton = tl = None

_jit = triton.jit if triton else (lambda function: function)


@_jit
def scan_narrow(
    queries,
    base,
    query_bars,
    base_bars,
    spans,
    n_found,
    pairs,
    values,
    n_queries,
    n_base,
    capacity,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    IS_SELF: tl.constexpr,
):
    """Rows of a width that fits the chip: a program keeps its query tile and walks over a span of base rows."""
    n_tiles: tl.constexpr = SPAN // BLOCK_ROWS
    span = spans + tl.program_id(0) // n_tiles * 2
    first_row = tl.load(span) * SPAN + tl.program_id(0) % n_tiles * BLOCK_ROWS
    first_column = tl.load(span + 1) * SPAN
    stop = tl.minimum(first_column + SPAN, n_base)
    if IS_SELF:
        first_column = tl.maximum(first_column, first_row // BLOCK_COLUMNS * BLOCK_COLUMNS)
    if first_row >= n_queries:
        stop = first_column
    inside = tl.arange(0, WIDTH)
    rows = first_row + tl.arange(0, BLOCK_ROWS)
    query_tile = tl.load(queries + rows.to(tl.int64)[:, None] * WIDTH + inside[None, :])
    row_bar = tl.load(query_bars + rows)
    for column in range(first_column, stop, BLOCK_COLUMNS):
        columns = column + tl.arange(0, BLOCK_COLUMNS)
        base_tile = tl.load(base + columns.to(tl.int64)[None, :] * WIDTH + inside[:, None])
        product = tl.dot(query_tile, base_tile)
        if _has_pairs(product, row_bar, base_bars, column, IS_SELF):
            _report(product, rows, column, query_bars, base_bars, n_found, pairs, values, capacity, n_base, IS_SELF)


@_jit
def scan_wide(
    queries,
    base,
    query_bars,
    base_bars,
    spans,
    n_found,
    pairs,
    values,
    n_queries,
    n_base,
    capacity,
    width,
    SPAN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    IS_SELF: tl.constexpr,
):
    """Rows of any width: a program makes one tile, a slice of the width at a time."""
    n_row_tiles: tl.constexpr = SPAN // BLOCK_ROWS
    n_tiles: tl.constexpr = n_row_tiles * (SPAN // BLOCK_COLUMNS)
    span = spans + tl.program_id(0) // n_tiles * 2
    tile = tl.program_id(0) % n_tiles
    first_row = tl.load(span) * SPAN + tile % n_row_tiles * BLOCK_ROWS
    first_column = tl.load(span + 1) * SPAN + tile // n_row_tiles * BLOCK_COLUMNS
    is_needed = (first_row < n_queries) & (first_column < n_base)
    if IS_SELF:
        is_needed &= first_column + BLOCK_COLUMNS > first_row
    if is_needed:
        rows = first_row + tl.arange(0, BLOCK_ROWS)
        columns = first_column + tl.arange(0, BLOCK_COLUMNS)
        inside = tl.arange(0, BLOCK_WIDTH)
        query_tile = queries + rows.to(tl.int64)[:, None] * width + inside[None, :]
        base_tile = base + columns.to(tl.int64)[None, :] * width + inside[:, None]
        product = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
        for _ in range(0, width, BLOCK_WIDTH):
            product = tl.dot(tl.load(query_tile), tl.load(base_tile), product)
            query_tile += BLOCK_WIDTH
            base_tile += BLOCK_WIDTH
        if _has_pairs(product, tl.load(query_bars + rows), base_bars, first_column, IS_SELF):
            column = first_column
            _report(product, rows, column, query_bars, base_bars, n_found, pairs, values, capacity, n_base, IS_SELF)


@_jit
def _exceed(product, row_bar, base_bars, first_column, IS_SELF: tl.constexpr):
    """How far each product is above the lower of its two bars."""
    bar = row_bar[:, None]
    if IS_SELF:
        bar = tl.minimum(bar, tl.load(base_bars + first_column + tl.arange(0, product.shape[1]))[None, :])
    return product - bar


@_jit
def _has_pairs(product, row_bar, base_bars, first_column, IS_SELF: tl.constexpr):
    return tl.max(_exceed(product, row_bar, base_bars, first_column, IS_SELF)) >= 0


@_jit
def _report(
    product,
    rows,
    first_column,
    query_bars,
    base_bars,
    n_found,
    pairs,
    values,
    capacity,
    n_base,
    IS_SELF: tl.constexpr,
):
    """Write the pairs of a tile that reach a bar, a quarter at a time; nothing once the room is used up."""
    if tl.load(n_found, volatile=True) < capacity:
        row_bar = tl.load(query_bars + rows)
        quarter: tl.constexpr = product.shape[1] // 4
        left, right = _halve(product)
        for part in tl.static_range(4):
            if part % 2 == 0:
                even, odd = _halve(left if part == 0 else right)
            piece = even if part % 2 == 0 else odd
            column = first_column + part * quarter
            if _has_pairs(piece, row_bar, base_bars, column, IS_SELF):
                above = _exceed(piece, row_bar, base_bars, column, IS_SELF)
                _write(piece, above, rows, column, n_found, pairs, values, capacity, n_base, IS_SELF)


@_jit
def _halve(tile):
    """The left and right half of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, (tile.shape[0], 2, tile.shape[1] // 2)), (0, 2, 1)))


@_jit
def _write(product, above, rows, first_column, n_found, pairs, values, capacity, n_base, IS_SELF: tl.constexpr):
    """Queries past the last have an infinite bar; base rows past the last may reach a query's."""
    columns = (first_column + tl.arange(0, product.shape[1]))[None, :]
    is_found = (above >= 0) & (columns < n_base)
    if IS_SELF:
        is_found = is_found & (columns > rows[:, None])
    one = tl.full(product.shape, 1, tl.int32)
    place = tl.atomic_add(n_found + tl.zeros(product.shape, tl.int32), one, mask=is_found, sem="relaxed")
    is_found = is_found & (place < capacity)
    tl.store(pairs + place, (rows.to(tl.int64)[:, None] << 32) | columns.to(tl.int64), mask=is_found)
    tl.store(values + place, product, mask=is_found)


@_jit
def multiply_pairs(
    queries,
    base,
    rows,
    columns,
    products,
    n_pairs,
    width,
    query_stride,
    base_stride,
    PAIRS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Float64 products of paired rows: ``queries[rows[i]] . base[columns[i]]``."""
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    is_pair = pair < n_pairs
    query = queries + tl.load(rows + pair, mask=is_pair, other=0)[:, None] * query_stride
    near = base + tl.load(columns + pair, mask=is_pair, other=0)[:, None] * base_stride
    total = tl.zeros((PAIRS, BLOCK_WIDTH), dtype=tl.float64)
    for start in range(0, width, BLOCK_WIDTH):
        inside = start + tl.arange(0, BLOCK_WIDTH)[None, :]
        is_inside = is_pair[:, None] & (inside < width)
        a = tl.load(query + inside, mask=is_inside, other=0.0).to(tl.float64)
        b = tl.load(near + inside, mask=is_inside, other=0.0).to(tl.float64)
        total += a * b
    tl.store(products + pair, tl.sum(total, 1), mask=is_pair)
