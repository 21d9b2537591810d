"""Every kind of data becomes the same batches."""

import numpy as np
import pytest
import torch
import transformers
from tests.embeddings.cases import assert_close, penultimate
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from ruler.core.errors import InputError
from ruler.embeddings import embed
from ruler.embeddings.heads import BLIND_TO_PADDING


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


def count_shapes(kind="Bert", **sizes):
    """A small encoder of transformers, and the shapes of all tokens that it is fed."""
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = getattr(transformers, f"{kind}Config")(vocab_size=50, **small, **sizes)
    model, shapes = getattr(transformers, f"{kind}ForSequenceClassification")(config), []
    model.register_forward_pre_hook(
        lambda _, __, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    return model, shapes


@pytest.fixture
def texts():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(1, 50, (n,), generator=generator) for n in (3, 12, 2, 11, 5, 4)]


def pad_texts(texts):
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": pad(texts, batch_first=True),
        "attention_mask": pad([torch.ones_like(text) for text in texts], batch_first=True),
    }


@pytest.mark.parametrize("labels", [None, [0, 1, 1, 0, 1, 0], list("abcabc")])
@pytest.mark.parametrize("are_listed", [True, False])
def test_encoders_read_texts_by_length_and_return_them_in_order(texts, labels, are_listed):
    (model, shapes), whole = count_shapes(), pad_texts(texts)
    expected = embed(model, {**whole, "id": list("uvwxyz")}, batch_size=6)
    shapes.clear()
    if are_listed:
        data = [{"input_ids": text, "id": name} for text, name in zip(texts, "uvwxyz", strict=True)]
        data = [
            one if labels is None else {**one, "labels": label} for one, label in zip(data, labels or data, strict=True)
        ]
    else:
        data = {**whole, "id": list("uvwxyz")} | ({} if labels is None else {"labels": np.array(labels)})
    found = embed(model, data, batch_size=2)
    probed = set() if are_listed else {(2, 12)}
    assert set(shapes) == {(2, 12), (2, 5), (2, 3)} | probed  # nothing is padded beyond the longest text of its batch
    assert_close(found.values, expected.values)
    assert found.ids.tolist() == list("uvwxyz")
    assert (found.labels is None) if labels is None else (found.labels.tolist() == labels)
    assert (found.losses is None) == (labels is None or isinstance(labels[0], str))
    if found.losses is not None:
        right = embed(model, {**whole, "labels": torch.tensor(labels)}, batch_size=6).losses
        np.testing.assert_allclose(found.losses, right, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning")  # transformers, of DeBERTa
@pytest.mark.parametrize("kind", sorted(BLIND_TO_PADDING))
def test_texts_are_read_alike_alone_and_among_longer_ones(texts, kind):
    sizes = {
        "vocab_size": 60,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "cls_token_id": 0,
        "sep_token_id": 2,
    }
    width = dict.fromkeys(("hidden_size", "embedding_size", "dim", "input_embedding_size", "output_embedding_size"), 16)
    inner = {"num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    distil = {"n_layers": 3, "n_heads": 2, "hidden_dim": 32}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **sizes, **width, **inner, **distil)
    model = transformers.AutoModel.from_config(config)
    texts = [text + 4 for text in texts]  # no special tokens
    among = embed(model, [{"input_ids": text} for text in texts], batch_size=6).values
    alone = [embed(model, [{"input_ids": text}]).values for text in texts]
    assert_close(np.concatenate(alone), among)


def test_models_that_see_padding_are_given_all_of_it(texts):
    (model, shapes), whole = count_shapes(), pad_texts(texts)
    mix = torch.nn.Conv1d(16, 16, 3, padding=1)
    layer = model.bert.encoder.layer[0]
    own = layer.forward
    layer.forward = lambda states, *args, **named: own(mix(states.transpose(1, 2)).transpose(1, 2), *args, **named)
    expected = embed(model, whole, batch_size=6).values
    shapes.clear()
    assert_close(embed(model, whole, batch_size=2).values, expected)
    assert shapes[-3:] == [(2, 12)] * 3
    same = {name: value[[2, 2, 2]] for name, value in whole.items()}  # no record shows how wide the others are
    assert_close(embed(model, same, batch_size=2).values, expected[[2, 2, 2]])


@torch.no_grad()
def test_texts_beside_which_something_else_lies_are_read_in_their_order(texts):
    whole = pad_texts(texts)
    places = torch.arange(12).expand(6, 12)
    model, shapes = count_shapes()
    embed(model, {**whole, "position_ids": places}, batch_size=2)
    assert set(shapes) == {(2, 12), (6, 12)} or set(shapes) == {(2, 12)}
    model, shapes = count_shapes("ConvBert", embedding_size=16)
    expected = model.eval().convbert(**whole).last_hidden_state[:, 0]
    shapes.clear()
    embed(model, whole, batch_size=2)
    assert set(shapes) == {(2, 12)}
    assert_close(embed(model, whole, batch_size=2, layer="convbert").values, expected)


def test_texts_padded_on_the_left_are_read_whole(texts):
    (model, shapes), whole = count_shapes(), {name: value.flip(1) for name, value in pad_texts(texts).items()}
    rows = embed(model, whole, batch_size=2).values
    assert set(shapes) == {(2, 12)}
    assert_close(rows, embed(model, whole, batch_size=6).values)


def test_empty_texts_are_refused(texts):
    model, _ = count_shapes()
    with pytest.raises(InputError, match="data must hold at least one record; got 0"):
        embed(model, {name: value[:0] for name, value in pad_texts(texts).items()})


def test_no_batch_size_takes_the_default_on_a_processor(model, rows):
    np.testing.assert_array_equal(embed(model, rows, batch_size=None).values, embed(model, rows).values)


@pytest.mark.gpu
def test_no_batch_size_takes_what_fits_on_a_gpu(model, rows):
    data = rows.repeat(100, 1)
    sizes = set()
    hook = model.net[0].register_forward_hook(lambda *given: sizes.add(len(given[2])))
    found = embed(model, data, batch_size=None, device="cuda")
    hook.remove()
    assert sizes == {256, len(data)}
    assert_close(found.values, embed(model, data).values)
