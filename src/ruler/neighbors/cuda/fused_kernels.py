"""Triton kernels: tile products that name, without leaving the chip, the pairs a search must look at again.

A tile of products stays in registers. It is compared with one bar per row (and per column, where a set is searched in
itself, so that half of the tiles do); only pairs that reach a bar are written, which a third of the tiles or fewer do.
"""

# Triton reads these functions rather than Python: no types but constexpr, which it writes in capitals.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-not-found"
# ruff: noqa: N803
from __future__ import annotations

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ModuleNotFoundError:  # no Triton, or one without descriptors: nobody calls these then
    triton = tl = TensorDescriptor = None

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
    N_WARPS: tl.constexpr,
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
        if _may_have_pairs(product, row_bar, base_bars, column, IS_SELF, N_WARPS):
            _report(product, row_bar, rows, column, base_bars, n_found, pairs, values, capacity, n_base, IS_SELF)


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
    N_WARPS: tl.constexpr,
):
    """Rows of any width, ``queries`` and ``base`` as tensor descriptors: a program makes one tile, slice by slice."""
    n_row_tiles: tl.constexpr = SPAN // BLOCK_ROWS
    n_tiles: tl.constexpr = n_row_tiles * (SPAN // BLOCK_COLUMNS)
    span = spans + tl.program_id(0) // n_tiles * 2
    tile = tl.program_id(0) % n_tiles
    first_row = tl.load(span) * SPAN + tile % n_row_tiles * BLOCK_ROWS
    column = tl.load(span + 1) * SPAN + tile // n_row_tiles * BLOCK_COLUMNS
    is_needed = (first_row < n_queries) & (column < n_base)
    if IS_SELF:
        is_needed &= column + BLOCK_COLUMNS > first_row
    if is_needed:
        product = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
        for start in range(0, width, BLOCK_WIDTH):
            query_tile = queries.load([first_row, start])
            base_tile = base.load([column, start])
            product = tl.dot(query_tile, base_tile.T, product)
        rows = first_row + tl.arange(0, BLOCK_ROWS)
        row_bar = tl.load(query_bars + rows)
        if _may_have_pairs(product, row_bar, base_bars, column, IS_SELF, N_WARPS):
            _report(product, row_bar, rows, column, base_bars, n_found, pairs, values, capacity, n_base, IS_SELF)


@_jit
def scan_centred(
    queries,
    base,
    query_bars,
    base_bars,
    query_offsets,
    base_offsets,
    query_slack,
    query_scales,
    base_scales,
    base_reach,
    query_clusters,
    base_clusters,
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
    N_WARPS: tl.constexpr,
):
    """`scan_wide` of rows stored relative to centres: pairs whose half squared distance may be below a bar, negated."""
    n_row_tiles: tl.constexpr = SPAN // BLOCK_ROWS
    n_tiles: tl.constexpr = n_row_tiles * (SPAN // BLOCK_COLUMNS)
    pair = spans + tl.program_id(0) // n_tiles * 2
    tile = tl.program_id(0) % n_tiles
    row_span = tl.load(pair)
    column_span = tl.load(pair + 1)
    first_row = row_span * SPAN + tile % n_row_tiles * BLOCK_ROWS
    column = column_span * SPAN + tile // n_row_tiles * BLOCK_COLUMNS
    is_needed = first_row < n_queries
    if IS_SELF:
        is_needed &= column + BLOCK_COLUMNS > first_row
    if is_needed:
        product = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), dtype=tl.float32)
        for start in range(0, width, BLOCK_WIDTH):
            query_tile = queries.load([first_row, start])
            base_tile = base.load([column, start])
            product = tl.dot(query_tile, base_tile.T, product)
        rows = first_row + tl.arange(0, BLOCK_ROWS)
        columns = column + tl.arange(0, BLOCK_COLUMNS)
        query_line = query_offsets + tl.load(base_clusters + column_span).to(tl.int64) * n_queries
        base_line = base_offsets + tl.load(query_clusters + row_span).to(tl.int64) * n_base
        alpha = tl.load(query_line + rows) - tl.load(query_slack + rows) * tl.load(base_reach + column_span)
        beta = tl.load(base_line + columns)
        scale = tl.load(query_scales + row_span) * tl.load(base_scales + column_span)
        nearness = product * scale - alpha[:, None] - beta[None, :]
        row_bar = tl.load(query_bars + rows)
        if _may_have_pairs(nearness, row_bar, base_bars, column, IS_SELF, N_WARPS):
            _report(nearness, row_bar, rows, column, base_bars, n_found, pairs, values, capacity, n_base, IS_SELF)


@_jit
def _may_have_pairs(product, row_bar, base_bars, first_column, IS_SELF: tl.constexpr, N_WARPS: tl.constexpr):
    """Whether any pair of a tile may reach a bar.

    Rows that one thread holds are folded into their largest product and lowest bar before anything is compared: a
    maximum is half as fast as an addition, and it is all that this pass does beside the products.
    """
    n_folds: tl.constexpr = product.shape[0] // (16 * N_WARPS)
    n_columns: tl.constexpr = product.shape[1]
    folded = tl.max(tl.max(tl.reshape(product, (n_folds, N_WARPS, 2, 8, n_columns)), 0), 1)
    bar = tl.min(tl.min(tl.reshape(row_bar, (n_folds, N_WARPS, 2, 8)), 0), 1)[:, :, None]
    if IS_SELF:
        bar = tl.minimum(bar, tl.load(base_bars + first_column + tl.arange(0, n_columns))[None, None, :])
    return tl.max(folded - bar) >= 0


@_jit
def _report(
    product,
    row_bar,
    rows,
    first_column,
    base_bars,
    n_found,
    pairs,
    values,
    capacity,
    n_base,
    IS_SELF: tl.constexpr,
):
    """Write the pairs of a tile that reach a bar, the best of every row at a time; nothing once the room is used up.

    Queries past the last have an infinite bar; base rows past the last may reach a query's.
    """
    nothing: tl.constexpr = -4.0
    columns = (first_column + tl.arange(0, product.shape[1]))[None, :]
    bar = row_bar[:, None]
    is_left = columns < n_base
    if IS_SELF:
        bar = tl.minimum(bar, tl.load(base_bars + first_column + tl.arange(0, product.shape[1]))[None, :])
        is_left = is_left & (columns > rows[:, None])
    left = tl.where(is_left & (product >= bar), product, nothing)
    best = tl.max(left, 1)
    while (tl.max(best) > nothing) & (tl.load(n_found, volatile=True) < capacity):
        column = tl.max(tl.where(left == best[:, None], columns, -1), 1)
        is_found = best > nothing
        place = tl.atomic_add(n_found + tl.zeros_like(rows), tl.full(rows.shape, 1, tl.int32), mask=is_found)
        is_found = is_found & (place < capacity)
        tl.store(pairs + place, (rows.to(tl.int64) << 32) | column.to(tl.int64), mask=is_found)
        tl.store(values + place, best, mask=is_found)
        left = tl.where(columns == column[:, None], nothing, left)
        best = tl.max(left, 1)


@_jit
def raise_slots(
    pairs, values, slots, start, stop, error, N_SLOTS: tl.constexpr, IS_SELF: tl.constexpr, BLOCK: tl.constexpr
):
    """Enter pairs as lower bounds: ``slots[row, column % N_SLOTS]`` and, in a self search, the other way round."""
    place = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_pair = place < stop
    pair = tl.load(pairs + place, mask=is_pair, other=0)
    lower = tl.load(values + place, mask=is_pair, other=0.0) - error
    row, column = pair >> 32, pair & 0xFFFFFFFF
    tl.atomic_max(slots + row * N_SLOTS + column % N_SLOTS, lower, mask=is_pair, sem="relaxed")
    if IS_SELF:
        tl.atomic_max(slots + column * N_SLOTS + row % N_SLOTS, lower, mask=is_pair, sem="relaxed")


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
