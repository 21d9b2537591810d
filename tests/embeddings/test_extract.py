"""embed: plain torch modules, their modes and devices, and every kind of data."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import dropout
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError
from ruler.embeddings import embed


class PaperMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.net(x)


class Noisy(PaperMLP):
    def forward(self, x):
        return self.net(dropout(x, training=True))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return PaperMLP()


@pytest.fixture
def rows():
    return torch.randn(23, 5, generator=torch.Generator().manual_seed(1))


def penultimate(model, x):
    """The second ReLU, written out with the weights alone."""
    w = {name: value.detach() for name, value in model.state_dict().items()}
    hidden = torch.relu(x @ w["net.0.weight"].T + w["net.0.bias"])
    return torch.relu(hidden @ w["net.3.weight"].T + w["net.3.bias"]).numpy()


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_paper_mlp_in_train_mode_gives_the_second_relu(model, rows):
    model.train()
    result = embed(model, rows)
    close(result.values, penultimate(model, rows))
    assert result.layer == "net.6:input"
    assert result.values.dtype == np.float32
    assert result.ids.tolist() == list(range(23))


@given(batch_size=st.integers(1, 40), n=st.integers(1, 30))
@settings(max_examples=20, deadline=None)
def test_batch_size_changes_nothing(batch_size, n):
    torch.manual_seed(0)
    model, x = PaperMLP(), torch.randn(n, 5)
    close(embed(model, x, batch_size=batch_size).values, penultimate(model, x))


def test_the_reported_layer_can_be_given_again(model, rows):
    first = embed(model, rows)
    np.testing.assert_array_equal(embed(model, rows, layer=first.layer).values, first.values)


def test_named_layer_is_its_output_even_if_the_next_overwrites_it(rows):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    result = embed(model, rows, layer="0")
    close(result.values, model[0](rows).detach().numpy())
    assert (result.values < 0).any()
    assert result.layer == "0"


def test_wrong_layer_name_gets_a_hint(model, rows):
    with pytest.raises(LayerNotFoundError, match=r"got 'net\.44'\. Did you mean 'net\.4'"):
        embed(model, rows, layer="net.44")
    with pytest.raises(LayerNotFoundError, match=r"one of the model's 8 modules; got 'zzz'\. It begins net, net\.0"):
        embed(model, rows, layer="zzz")


def test_every_mode_gradient_hook_and_random_stream_is_as_before(model, rows):
    model.train()
    model.net[2].eval()
    modes = [module.training for module in model.modules()]
    before, stream = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    embed(model, DataLoader(TensorDataset(rows), batch_size=4))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.is_grad_enabled()
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    model(rows).sum().backward()  # nothing of inference mode is left behind


def test_modes_and_hooks_are_restored_after_an_error(model, rows):
    model.train()
    model.net[2].eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        embed(model, rows[:, :3])
    assert [module.training for module in model.modules()] == modes
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.is_grad_enabled()


def test_train_with_side_effects_is_not_called(rows):
    class Merging(PaperMLP):
        def train(self, mode=True):
            raise AssertionError("train() was called")

    torch.manual_seed(0)
    model = Merging()
    close(embed(model, rows).values, penultimate(model, rows))
    assert model.training


def test_unstable_model_is_refused(rows):
    torch.manual_seed(0)
    with pytest.raises(UnstableModelError, match="embedded twice, differs by up to"):
        embed(Noisy(), rows)


def test_nan_rows_are_counted(model, rows):
    rows[[3, 20], 1] = float("nan")
    with pytest.raises(InputError, match="embeddings must be finite; got NaN or inf in 2 of 23 rows"):
        embed(model, rows)


def test_infinite_rows_are_counted(rows):
    with pytest.raises(InputError, match="NaN or inf in 23 of 23 rows"):
        embed(nn.Sequential(nn.Threshold(1e9, float("inf")), nn.Linear(5, 2)), rows)


def test_float64_model_gives_float64_and_casts_its_input(model, rows):
    result = embed(model.double(), rows.numpy())
    assert result.values.dtype == np.float64
    np.testing.assert_allclose(result.values, penultimate(model, rows.double()), rtol=1e-12)


def test_half_precision_gives_float32(model, rows):
    assert embed(model.bfloat16(), rows).values.dtype == np.float32


def test_model_must_be_a_module(rows):
    with pytest.raises(InputError, match=r"model must be a torch\.nn\.Module; got str"):
        embed("resnet18", rows)


def test_batch_size_must_be_positive(model, rows):
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1; got 0"):
        embed(model, rows, batch_size=0)


def test_device_must_exist(model, rows):
    with pytest.raises(InputError, match="device must be one that torch can use here; got 'cude'"):
        embed(model, rows, device="cude")
    close(embed(model, rows, device="cpu").values, penultimate(model, rows))


def test_spread_model_keeps_its_devices(model, rows):
    model.net[6].to("meta")
    with pytest.raises(InputError, match="device must be left out for a model that is spread over several"):
        embed(nn.Sequential(model.net[6], model.net[0]), rows, device="cpu")
    assert model.net[6].weight.device.type == "meta"
    assert model.net[0].weight.device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_device_is_left_again(model, rows):
    result = embed(model, rows, device="cuda")
    np.testing.assert_allclose(result.values, penultimate(model, rows), rtol=1e-4, atol=1e-5)
    assert all(p.device.type == "cpu" for p in model.parameters())
    close(embed(model.cuda(), rows).values, result.values)


def test_a_model_runs_in_full_precision_by_fixed_algorithms(model, rows, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)  # its settings are there without it
    torch.set_float32_matmul_precision("high")
    seen = []
    handle = model.register_forward_pre_hook(
        lambda *given: seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.deterministic))
    )
    try:
        embed(model, rows)
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.deterministic) == ("high", False)
    finally:
        handle.remove()
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {("highest", True)}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_convolutions_on_a_gpu_are_not_rounded():
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model, images = nn.Sequential(wide, nn.Linear(64, 2)), torch.randn(16, 64, 12, 12)
    exact = embed(model.double(), images.double()).values
    found = embed(model.float(), images, device="cuda").values
    assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()  # with inputs of ten bits it is above 1e-4


def test_parallel_wrapper_is_seen_through(model, rows):
    close(embed(nn.DataParallel(model), rows).values, penultimate(model, rows))


class Compiled(nn.Module):
    """What torch.compile makes: the model inside, and a call that runs no hooks."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model

    def forward(self, x):
        raise AssertionError("the compiled graph was run")


def test_compiled_wrapper_is_seen_through(model, rows):
    close(embed(Compiled(model), rows).values, penultimate(model, rows))


def test_progress_is_silent_when_not_a_terminal(model, rows, capfd):
    embed(model, rows, progress=True)
    assert capfd.readouterr() == ("", "")


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
    close(embed(model, KINDS[kind](rows), batch_size=7).values, penultimate(model, rows))


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


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.empty(0, 5), "data must hold at least one record; got 0"),
        ([], "data must hold at least one record; got 0"),
        (torch.tensor(3.0), "data must have one row per record; got a single number"),
        (7, "data must be a tensor, an array, .* got int"),
        ("abc", "got str"),
        (["some text"], "data must be made of numbers; got str .* Tokenise texts first"),
        (np.array([["a"]]), "data must be made of numbers; got ndarray"),
        ({"y": torch.ones(2, 5)}, r"model's inputs \(x\) as keys; got y\. Rename"),
        ([torch.ones(5), torch.ones(4)], r"records must have equal shapes; got \(4,\) and \(5,\)"),
        ([{"x": torch.ones(5)}, {"x": torch.ones(5, 1)}], "records must have equal shapes"),
        ([{"x": torch.ones(5)}, torch.ones(5)], "records must all have the same parts"),
    ],
)
def test_data_that_cannot_be_fed_is_refused(model, data, message):
    with pytest.raises(InputError, match=message):
        embed(model, data)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)

    def forward(self, x, gate, scale=None):
        return self.fc(x * gate if scale is None else x * gate * scale)


def test_parts_are_fed_by_the_signature_of_forward(rows):
    model, gate = TwoInputs(), torch.rand(23, 5)
    expected = (rows * gate).numpy()
    labels = torch.zeros(23)
    close(embed(model, (rows, gate)).values, expected)
    close(embed(model, (rows, gate, labels)).values, expected)
    close(embed(model, TensorDataset(rows, gate, labels)).values, expected)
    close(embed(model, {"gate": gate, "x": rows, "scale": 2 * gate}).values, expected * 2 * gate.numpy())


def test_parts_that_do_not_fit_forward_are_refused(rows):
    model, gate = TwoInputs(), torch.rand(23, 5)
    with pytest.raises(InputError, match=r"must hold the model's inputs \(x, gate\); got tuples of 1"):
        embed(model, (rows,))
    with pytest.raises(
        InputError, match="unambiguous; got tuples of 4 for a forward with the optional parameters scale"
    ):
        embed(model, (rows, gate, gate, gate))
    with pytest.raises(InputError, match=r"got 'scales'\. Did you mean 'scale'"):
        embed(model, {"x": rows, "gate": gate, "scales": gate})
    with pytest.raises(InputError, match=r"as many records in every part; got lengths \{0: 23, 1: 22\}"):
        embed(model, (rows, gate[1:]))
