"""The paper's network, and its second ReLU written out."""

import numpy as np
import torch
from torch import nn


class PaperMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.net(x)


def penultimate(model, x):
    """The second ReLU, written out with the weights alone."""
    w = {name: value.detach() for name, value in model.state_dict().items()}
    hidden = torch.relu(x @ w["net.0.weight"].T + w["net.0.bias"])
    return torch.relu(hidden @ w["net.3.weight"].T + w["net.3.bias"]).numpy()


def assert_close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
