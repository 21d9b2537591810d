"""Evidence -> forget, held-out and retain records of one layer in two dimensions, for a picture."""

import numpy as np
from scipy.linalg import eigh

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Plane
from ruler.core.types import FloatArray

MOST_PER_SIDE = 200
_MOST_NUMBERS = 1 << 21  # per side, 16 MiB: of wider layers fewer records are drawn
_DECIMALS = 4  # of a standard deviation: less than a pixel, and more than the order of additions can change
_TIE = 1e-9  # relative distance within which two records lie equally far out


def draw_plane(evidence: Evidence) -> Plane | None:
    """The audited model's main layer along its two principal components.

    The components are those of a random sample of at most 200 records per side, which is what is drawn: cost and memory
    do not grow with the data. None where all records are one point, or rows have a single number.
    """
    rng = np.random.default_rng(evidence.settings.seed)
    rows, sampled = evidence.main.rows, {}
    most = min(MOST_PER_SIDE, evidence.settings.n_plotted, max(2, _MOST_NUMBERS // rows["forget"].shape[1]))
    for side, own in rows.items():
        kept = np.arange(len(own)) if len(own) <= most else np.sort(rng.choice(len(own), most, replace=False))
        sampled[side] = np.asarray(own[kept], dtype=np.float64)
    found = find_components(np.concatenate(list(sampled.values())))
    if found is None:
        return None
    places, shares = found
    stops = np.cumsum([len(one) for one in sampled.values()])[:-1]
    points = dict(zip(map(str, sampled), np.split(places, stops), strict=True))
    return Plane(layer=evidence.main_layer, points=points, shares=shares)


def find_components(rows: FloatArray) -> tuple[FloatArray, tuple[float, float]] | None:
    """Places of rows along their first two principal components, and the share of the variance that each holds.

    Places are in standard deviations of the first component. The row that lies furthest out along a component (the
    first of several) lies on its positive side, so that turning, scaling or moving all rows changes nothing.

    Args:
        rows: (n, p), finite. It is overwritten.

    Returns:
        Places (n, 2), rounded to four decimals, and two shares; None where all rows are equal or p is 1.

    Example:
        >>> places, shares = find_components(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        >>> places.tolist(), [round(share, 6) for share in shares]
        ([[1.4142, 0.0], [-1.4142, 0.0], [0.0, 0.4714], [0.0, -0.4714]], [0.9, 0.1])
    """
    largest = float(np.abs(rows).max())
    if rows.shape[1] < 2 or largest == 0:
        return None
    rows /= largest  # squares of large numbers would overflow, those of small ones vanish
    rows -= rows.mean(axis=0)
    n, p = rows.shape
    products = rows @ rows.T if n < p else rows.T @ rows
    variance, size = float(np.trace(products)), len(products)
    if variance <= n * p * np.finfo(np.float64).eps ** 2:
        return None
    values, vectors = eigh(products, subset_by_index=[size - 2, size - 1], overwrite_a=True)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    places = vectors * np.sqrt(values) if n < p else rows @ vectors
    reach = np.abs(places)
    furthest = places[(reach >= (1 - _TIE) * reach.max(axis=0)).argmax(axis=0), [0, 1]]
    places *= np.where(furthest < 0, -1.0, 1.0) / np.sqrt(values[0] / n)
    first, second = np.round(values / variance, _DECIMALS).tolist()
    return np.round(places, _DECIMALS) + 0.0, (first, second)
