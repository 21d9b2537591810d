"""Every kind of data becomes the same batches."""

import numpy as np
import pytest
import torch
from tests.embeddings.cases import assert_close, penultimate
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from ruler.core.errors import InputError
from ruler.embeddings import embed


class Labelled(Dataset):
    def __init__(self, x, ids=None):
        self.x, self.ids = x, ids

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], "a label that is no number"


class Dicts(Dataset):
    def __init__(self, x):
        self.data = x

    def __len__(self):
        return len(self.data)

    def __getitem__(self, row):
        return {"x": self.data[row], "labels": 1, "id": f"r{row}", "note": "free text"}


class Stream(IterableDataset):
    def __init__(self, x):
        self.x = x

    def __iter__(self):
        return iter(self.x)


KINDS = {
    "tensor": lambda x: x,
    "array": lambda x: x.numpy(),
    "float64 array": lambda x: x.numpy().astype(np.float64),
    "read-only array": lambda x: np.frombuffer(x.numpy().tobytes(), np.float32).reshape(x.shape),
    "nested list": lambda x: x.tolist(),
    "list of tensors": list,
    "tuple with labels": lambda x: (x, torch.zeros(len(x))),
    "dict": lambda x: {"x": x, "labels": torch.zeros(len(x))},
    "dict of lists": lambda x: {"x": x.tolist()},
    "TensorDataset": lambda x: TensorDataset(x, torch.zeros(len(x))),
    "Dataset": Labelled,
    "dict Dataset": Dicts,
    "stream": Stream,
    "loader": lambda x: DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=4),
    "loader of dicts": lambda x: DataLoader(Dicts(x), batch_size=4),
    "loader of one": lambda x: DataLoader(TensorDataset(x[:, None]), batch_size=None),
    "loader of a stream": lambda x: DataLoader(Stream(x), batch_size=4),
    "loader that drops nothing": lambda x: DataLoader(TensorDataset(x), batch_size=len(x), drop_last=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_rows(model, rows, kind):
    assert_close(embed(model, KINDS[kind](rows), batch_size=7).values, penultimate(model, rows))


def test_ids_come_from_items_datasets_subsets_and_dicts(model, rows):
    names = [f"p{row}" for row in range(23)]
    assert embed(model, Dicts(rows), batch_size=5).ids[-1] == "r22"
    assert embed(model, DataLoader(Dicts(rows), batch_size=5)).ids[-1] == "r22"
    assert embed(model, Labelled(rows, names)).ids.tolist() == names
    assert embed(model, Labelled(rows, torch.arange(23) + 7)).ids.tolist() == list(range(7, 30))
    assert embed(model, Subset(Labelled(rows, names), [4, 2])).ids.tolist() == ["p4", "p2"]
    assert embed(model, DataLoader(Subset(Labelled(rows), [4, 2]))).ids.tolist() == [4, 2]
    assert embed(model, {"x": rows, "id": names}).ids.tolist() == names
    assert embed(model, {"x": rows.tolist(), "ids": names}).ids.tolist() == names


def test_wrong_number_of_ids_is_refused_before_the_run(model, rows):
    with pytest.raises(InputError, match=r"ids must be one per record, shape \(23,\); got shape \(2,\)"):
        embed(model, Labelled(rows, ["a", "b"]))


def test_length_that_is_not_true_is_refused(model, rows):
    loader = DataLoader(TensorDataset(rows), batch_size=5)
    loader.collate_fn = lambda items: torch.stack([item[0] for item in items[:4]])
    with pytest.raises(InputError, match="its length is 23, it gave 19"):
        embed(model, loader)


def test_shuffling_loader_is_refused(model, rows):
    data = TensorDataset(rows)
    weights = torch.utils.data.WeightedRandomSampler([1.0] * 23, 23)
    with pytest.raises(InputError, match=r"in order, or rows would not line up.*got a RandomSampler.*shuffle=False"):
        embed(model, DataLoader(data, shuffle=True))
    with pytest.raises(InputError, match="got a WeightedRandomSampler"):
        embed(model, DataLoader(data, sampler=weights))
    with pytest.raises(InputError, match="got a list"):
        embed(model, DataLoader(data, batch_sampler=[[3, 1], [0, 2]]))


def test_loader_that_drops_records_is_refused(model, rows):
    with pytest.raises(InputError, match="got drop_last=True, which loses the last ones"):
        embed(model, DataLoader(TensorDataset(rows), batch_size=5, drop_last=True))
    with pytest.raises(InputError, match="drop_last=True"):
        embed(model, DataLoader(Stream(rows), batch_size=5, drop_last=True))


def test_augmented_data_is_refused(model, rows):
    class Augmented(Labelled):
        def __getitem__(self, row):
            return self.x[row] + torch.rand(5)

    for data in (Augmented(rows), DataLoader(Augmented(rows), batch_size=4)):
        with pytest.raises(InputError, match=r"read twice, differs\. Turn off random augmentation"):
            embed(model, data)
