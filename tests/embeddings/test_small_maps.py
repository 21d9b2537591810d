"""Convolutions of small maps as products: the same numbers, and nothing else is touched."""

import copy

import pytest
import torch
from torch import nn

from ruler import embed
from ruler.embeddings.small_maps import multiply_patches, small_maps_as_products
from ruler.models.resnet18 import ResNet18

GPU = torch.device("cuda")


@pytest.mark.parametrize("stride", [1, 2, (2, 1)])
@pytest.mark.parametrize("padding", [0, 1, (2, 1)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_patches_give_what_the_convolution_gives(stride: int, padding: int, has_bias: bool) -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(5, 7, 3, stride=stride, padding=padding, bias=has_bias).double()
    maps = torch.randn(4, 5, 6, 7, dtype=torch.float64)
    torch.testing.assert_close(multiply_patches(convolution, maps), convolution(maps), rtol=1e-12, atol=1e-12)


def test_blocks_of_images_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    convolution, maps = nn.Conv2d(2, 3, 3, padding=1).double(), torch.randn(7, 2, 4, 4, dtype=torch.float64)
    whole = multiply_patches(convolution, maps)
    monkeypatch.setattr("ruler.embeddings.small_maps._BLOCK_NUMBERS", 3 * 16 * 18)
    torch.testing.assert_close(multiply_patches(convolution, maps), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_maps_lie_in_memory_as_those_of_the_convolution(layout: torch.memory_format) -> None:
    """Models call `view` on maps, which raises for maps in the other layout."""
    convolution, maps = nn.Conv2d(2, 3, 3, padding=1), torch.randn(5, 2, 4, 4).contiguous(memory_format=layout)
    with torch.no_grad():
        assert multiply_patches(convolution, maps).stride() == convolution(maps).stride()
        convolution.to(memory_format=layout)
        assert multiply_patches(convolution, maps.contiguous()).stride() == convolution(maps.contiguous()).stride()


class _Own(nn.Conv2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


def with_number(name: str) -> nn.Conv2d:
    """A convolution that got one number where it had a pair, which torch takes too."""
    convolution = nn.Conv2d(256, 256, 3, padding=1)
    setattr(convolution, name, 1)
    return convolution


def list_replaced(model: nn.Module) -> list[str]:
    """Names of the modules that run something else on a GPU."""
    with small_maps_as_products(model, GPU):
        return [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_only_plain_convolutions_of_many_channels_are_replaced_and_only_for_a_while() -> None:
    model = ResNet18()
    found = list_replaced(model)
    assert found == [*(f"layer3.{place}" for place in ("0.conv2", "1.conv1", "1.conv2"))] + [
        f"layer4.{place}" for place in ("0.conv1", "0.conv2", "1.conv1", "1.conv2")
    ]
    assert not any("forward" in vars(module) for module in model.modules())
    with small_maps_as_products(model, torch.device("cpu")):
        assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize(
    "convolution",
    [
        _Own(256, 256, 3),
        nn.Conv2d(256, 256, 3, groups=2),
        nn.Conv2d(256, 256, 3, dilation=2),
        nn.Conv2d(256, 256, 3, padding="same"),
        nn.Conv2d(256, 256, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(256, 256, 5),
        nn.Conv2d(255, 256, 3),
        with_number("stride"),
        with_number("padding"),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(256, 256, 3)),
    ],
)
def test_what_is_not_plain_keeps_its_own_forward(convolution: nn.Module) -> None:
    assert list_replaced(nn.Sequential(convolution)) == []


@pytest.mark.parametrize(
    ("maps", "is_product"),
    [
        (torch.randn(2, 256, 7, 7), True),
        (torch.randn(2, 256, 8, 7), False),
        (torch.randn(256, 4, 4), False),
        (torch.randn(0, 256, 4, 4), False),
    ],
)
def test_large_maps_and_single_ones_go_the_usual_way(
    maps: torch.Tensor, is_product: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.Tensor] = []

    def note(convolution: nn.Conv2d, maps: torch.Tensor) -> torch.Tensor:
        asked.append(maps)
        return multiply_patches(convolution, maps)

    monkeypatch.setattr("ruler.embeddings.small_maps.multiply_patches", note)
    model = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1))
    with torch.no_grad():
        usual = model(maps)
        with small_maps_as_products(model, GPU):
            torch.testing.assert_close(model(maps), usual, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(model[0](input=maps), usual, rtol=1e-4, atol=1e-5)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert model(maps).dtype == torch.bfloat16
            with pytest.raises(RuntimeError, match="channels"):
                model(torch.randn(2, 3, 4, 4))
    assert bool(asked) == is_product


@pytest.mark.gpu
def test_embeddings_on_a_gpu_are_those_of_the_processor() -> None:
    torch.manual_seed(0)
    model, images = ResNet18().eval(), torch.randn(300, 3, 32, 32)
    expected = torch.from_numpy(embed(copy.deepcopy(model).double(), images.double()).values).float()
    model.cuda()
    rows = [torch.from_numpy(embed(model, images, batch_size=size).values) for size in (256, 100)]
    for found in rows:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    again = torch.from_numpy(embed(model, images).values)
    assert torch.equal(again, rows[0])
