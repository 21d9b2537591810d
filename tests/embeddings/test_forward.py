"""One pass of a model: layers, modes, devices and wrappers are left as they were."""

import copy

import numpy as np
import pytest
import torch
from tests.embeddings.cases import PaperMLP, assert_close, penultimate
from torch import nn
from torch.nn.functional import dropout
from torch.utils.data import DataLoader, TensorDataset

from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError
from ruler.embeddings import embed


class Noisy(PaperMLP):
    def forward(self, x):
        return self.net(dropout(x, training=True))


def test_the_reported_layer_can_be_given_again(model, rows):
    first = embed(model, rows)
    np.testing.assert_array_equal(embed(model, rows, layer=first.layer).values, first.values)


def test_named_layer_is_its_output_even_if_the_next_overwrites_it(rows):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    result = embed(model, rows, layer="0")
    assert_close(result.values, model[0](rows).detach().numpy())
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
    with pytest.raises(InputError, match="mat1 and mat2"):
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
    assert_close(embed(model, rows).values, penultimate(model, rows))
    assert model.training


def test_unstable_model_is_refused(rows):
    torch.manual_seed(0)
    with pytest.raises(UnstableModelError, match="embedded twice, differs by up to"):
        embed(Noisy(), rows)


def test_model_must_be_a_module(rows):
    with pytest.raises(InputError, match=r"model must be a torch\.nn\.Module; got str"):
        embed("resnet18", rows)


def test_device_must_exist(model, rows):
    with pytest.raises(InputError, match="device must be one that torch can use here; got 'cude'"):
        embed(model, rows, device="cude")
    assert_close(embed(model, rows, device="cpu").values, penultimate(model, rows))


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
    assert_close(embed(model.cuda(), rows).values, result.values)


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
    assert_close(embed(nn.DataParallel(model), rows).values, penultimate(model, rows))


class Compiled(nn.Module):
    """What torch.compile makes: the model inside, and a call that runs no hooks."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model

    def forward(self, x):
        raise AssertionError("the compiled graph was run")


def test_compiled_wrapper_is_seen_through(model, rows):
    assert_close(embed(Compiled(model), rows).values, penultimate(model, rows))
