import pytest
import torch
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.models.small_cnn import SmallCNN


def test_representation_is_three_convolutions_and_two_layers() -> None:
    model, images = SmallCNN(4, n_channels=1, image_size=(17, 24)).eval(), torch.randn(3, 1, 17, 24)
    with torch.no_grad():
        maps = images
        for place in (0, 3, 6):
            layer = model.features[place]
            maps = functional.max_pool2d(functional.conv2d(maps, layer.weight, layer.bias, padding=1).clamp(min=0), 2)
        assert maps.shape == (3, 128, 2, 3)
        expected = functional.relu(model.fc2(functional.relu(model.fc1(maps.reshape(3, -1)))))
        assert torch.equal(model.penultimate(images), expected)


def test_images_that_pooling_would_make_vanish_are_told() -> None:
    with pytest.raises(InputError, match="image_size must be at least 8 by 8; got 32 by 7"):
        SmallCNN(image_size=(32, 7))
