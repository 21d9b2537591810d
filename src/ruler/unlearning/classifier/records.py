"""Records, layers and gradients of a classifier, as its methods need them."""

import torch
from torch import nn
from torch.nn import functional

from ruler.core.determinism import kept_modes
from ruler.core.errors import InputError
from ruler.embeddings.running import hooked
from ruler.training.batches import Batches, Source
from ruler.training.steps import compute_logits
from ruler.unlearning.method import Pair


def gather_pair(source: Source, model: nn.Module) -> Pair:
    """All records of a source in one pair (X, y), on the model's device.

    Raises:
        InputError: Inputs that are not one tensor.
    """
    batches = list(Batches(source, model))
    if not all(isinstance(inputs, torch.Tensor) for inputs, _ in batches):
        raise InputError("records must be pairs of one input tensor and labels; got inputs of several parts.")
    return torch.cat([inputs for inputs, _ in batches]), torch.cat([labels for _, labels in batches])


def draw_wrong_labels(pair: Pair, model: nn.Module, seed: int) -> Pair:
    """The same inputs, each with a class drawn evenly from those that it does not have.

    Example:
        >>> inputs, labels = torch.eye(3), torch.tensor([0, 1, 2])
        >>> (draw_wrong_labels((inputs, labels), nn.Linear(3, 3), seed=0)[1] == labels).any().item()
        False
    """
    inputs, labels = pair
    with torch.no_grad():
        n_classes = compute_logits(model, inputs[:2]).shape[-1]
    moves = torch.randint(1, n_classes, labels.shape, generator=torch.Generator().manual_seed(seed))
    return inputs, (labels + moves.to(labels.device)) % n_classes


def list_last_layers(model: nn.Module, n_layers: int) -> list[str]:
    """Names of the modules from the n-th last one with a weight matrix on, in the order in which they were made.

    Raises:
        InputError: The model has fewer such layers.

    Example:
        >>> list_last_layers(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2), nn.LayerNorm(2)), 1)
        ['2', '3']
    """
    owners = [name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))]
    modules = dict(model.named_modules())
    starts = [
        place
        for place, name in enumerate(owners)
        if any(value.ndim >= 2 for value in modules[name].parameters(recurse=False))
    ]
    if n_layers > len(starts):
        raise InputError(f"n_layers must be at most the model's {len(starts)} layers with a matrix; got {n_layers}.")
    return owners[starts[-n_layers] :]


def list_kernels(model: nn.Module) -> list[str]:
    """Names of the weights of all convolutions; in a model without any, of all matrices that layers can draw anew.

    Raises:
        InputError: The model has neither.

    Example:
        >>> list_kernels(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 2)))
        ['0.weight']
        >>> list_kernels(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2)))
        ['0.weight', '2.weight']
    """
    filters, matrices = [], []
    for layer, module in model.named_modules():
        can_draw = hasattr(module, "reset_parameters") or hasattr(module, "_reset_parameters")
        for name, value in module.named_parameters(layer, recurse=False):
            if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and value.ndim > 2:
                filters.append(name)
            elif can_draw and value.ndim == 2 and not isinstance(module, nn.Embedding):
                matrices.append(name)
    if not filters and not matrices:
        raise InputError("model must have convolutions or linear layers; got neither. Use fine_tuning.")
    return filters or matrices


def sum_loss_gradients(model: nn.Module, pair: Pair, *, block: int = 256) -> dict[str, torch.Tensor]:
    """Per trained parameter the gradient of the cross-entropy, summed over the records, in eval mode."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    sums = {name: torch.zeros_like(value) for name, value in named.items()}
    with kept_modes(model):
        model.eval()
        for inputs, labels in zip(*(torch.split(part, block) for part in pair), strict=True):
            loss = functional.cross_entropy(compute_logits(model, inputs), labels, reduction="sum")
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            for name, slope in zip(named, found, strict=True):
                if slope is not None:
                    sums[name] += slope
    return sums


def read_head(model: nn.Module, inputs: torch.Tensor) -> tuple[nn.Linear | None, torch.Tensor | None, torch.Tensor]:
    """The last linear layer, what enters it, and the logits, in eval mode; None for a model without linear layers."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)][-1:]
    caught: list[torch.Tensor] = []
    handles = (layer.register_forward_pre_hook(lambda module, given: caught.append(given[0])) for layer in layers)
    with hooked(handles), kept_modes(model), torch.no_grad():
        model.eval()
        logits = torch.cat([compute_logits(model, rows) for rows in torch.split(inputs, 1024)])
    return next(iter(layers), None), torch.cat(caught) if caught else None, logits
