import numpy as np
import pandas as pd
import pytest

from ruler.core.errors import InputError
from ruler.core.types import Embeddings


def test_columns_are_kept_as_text() -> None:
    table = pd.DataFrame(np.eye(3), columns=[0, "b", "c"])
    assert Embeddings(table.to_numpy(), columns=table.columns).columns == ("0", "b", "c")
    assert Embeddings(np.eye(3)).columns is None


def test_every_column_has_a_name_or_none_has() -> None:
    with pytest.raises(InputError, match=r"columns must be one name per column .* shape is \(3, 3\); got 2"):
        Embeddings(np.eye(3), columns=["a", "b"])
