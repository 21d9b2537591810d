"""ResNet-18 against transformers' own, with the weights copied over."""

import pytest
import torch
from torch import nn

from ruler.models import MODELS
from ruler.models.resnet18 import ResNet18


@pytest.fixture
def model():
    torch.manual_seed(2)
    model = ResNet18(4)
    for module in model.modules():  # statistics that are not 0 and 1 tell the layers apart
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
    return model.eval()


def copy_layer(convolution, norm, target) -> None:
    """Into transformers' pair of a convolution and its normalisation."""
    target.convolution.load_state_dict(convolution.state_dict())
    target.normalization.load_state_dict(norm.state_dict())


@pytest.fixture
def reference(model):
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=4
    )
    theirs = transformers.ResNetForImageClassification(config).eval()
    stem = theirs.resnet.embedder
    stem.embedder.convolution, stem.pooler = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    copy_layer(model.conv1, model.bn1, stem.embedder)
    for ours, stage in zip(
        (model.layer1, model.layer2, model.layer3, model.layer4), theirs.resnet.encoder.stages, strict=True
    ):
        for block, layer in zip(ours, stage.layers, strict=True):
            copy_layer(block.conv1, block.bn1, layer.layer[0])
            copy_layer(block.conv2, block.bn2, layer.layer[1])
            if block.downsample is not None:
                copy_layer(*block.downsample, layer.shortcut)
    theirs.classifier[-1].load_state_dict(model.fc.state_dict())
    return theirs


@pytest.mark.parametrize("size", [(32, 32), (23, 18)])
def test_logits_and_representation_equal_transformers(model, reference, size) -> None:
    images = torch.randn(3, 3, *size)
    with torch.no_grad():
        pooled = reference.resnet(images).pooler_output.flatten(1)
        torch.testing.assert_close(model.penultimate(images), pooled, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(images), reference(images).logits, rtol=1e-4, atol=1e-4)


def test_gradients_in_train_mode_equal_transformers(model, reference) -> None:
    images, labels = torch.randn(4, 3, 16, 16), torch.arange(4)
    for network in (model, reference):
        network.train()
    nn.functional.cross_entropy(model(images), labels).backward()
    nn.functional.cross_entropy(reference(images).logits, labels).backward()
    theirs = reference.resnet.embedder.embedder
    torch.testing.assert_close(model.conv1.weight.grad, theirs.convolution.weight.grad, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(model.bn1.running_mean, theirs.normalization.running_mean)


def test_parameters_are_as_many_and_named_as_in_torchvision() -> None:
    state = ResNet18().state_dict()
    assert sum(value.numel() for value in ResNet18().parameters()) == 11_173_962
    assert len(state) == 122
    assert state["conv1.weight"].shape == (64, 3, 3, 3)
    assert state["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert state["layer4.1.bn2.running_var"].shape == (512,)
    assert state["fc.weight"].shape == (10, 512)
    assert not any(name.startswith("layer1") and "downsample" in name for name in state)


def test_initial_convolutions_keep_the_scale_of_gradients() -> None:
    weight = ResNet18().layer3[1].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)


def test_larger_images_get_a_stem_of_stride_two() -> None:
    small, large = MODELS["resnet18"]((3, 32, 32), 2), MODELS["resnet18"]((3, 62, 47), 2)
    assert (small.conv1.stride, large.conv1.stride) == ((1, 1), (2, 2))
    assert large.eval()(torch.zeros(1, 3, 62, 47)).shape == (1, 2)
