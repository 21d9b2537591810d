"""Tables that scikit-learn brings along, read from its files: loading the package takes a second."""

import importlib.util
from pathlib import Path

import numpy as np

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray
from ruler.data.types import TabularData

_MEASURES = (
    *("radius", "texture", "perimeter", "area", "smoothness", "compactness"),
    *("concavity", "concave points", "symmetry", "fractal dimension"),
)


def read_breast_cancer() -> TabularData:
    """Breast Cancer: of each measure the mean, its error and the worst, then whether the tumour is benign."""
    table = read_bundled("breast_cancer.csv", "loading Breast Cancer", n_header_lines=1)
    names = [form.format(measure) for form in ("mean {}", "{} error", "worst {}") for measure in _MEASURES]
    return TabularData(
        name="breast_cancer",
        features=np.ascontiguousarray(table[:, :-1]),
        target=table[:, -1].astype(np.int64),
        feature_names=tuple(names),
        classes=("malignant", "benign"),
        ids=np.arange(len(table)),
    )


def read_bundled(file: str, needed_for: str, *, n_header_lines: int = 0) -> FloatArray:
    """The numbers of one of scikit-learn's own .csv files.

    Raises:
        MissingPackageError: scikit-learn is not installed.
        FileFormatError: It has no such file.
    """
    origin = getattr(importlib.util.find_spec("sklearn"), "origin", None)
    if origin is None:
        load_optional("sklearn", needed_for)  # raises, and says how to install it
    path = Path(str(origin)).parent / "datasets" / "data" / file
    if not path.is_file():
        raise FileFormatError(f"scikit-learn must hold {file}; got none at {path}. Install another version of it.")
    return np.loadtxt(path, delimiter=",", skiprows=n_header_lines)
