"""How badly a model answers for each record, from the outputs of the pass that also gives the embeddings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ruler.core.errors import shorten
from ruler.core.types import FloatArray, IndexArray
from ruler.embeddings import heads
from ruler.embeddings.batches import Batch
from ruler.embeddings.forward import HeadInput, LayerReader
from ruler.embeddings.running import run_head

CROSS_ENTROPY = "cross-entropy"
BINARY = "binary cross-entropy"
MULTI_LABEL = "mean binary cross-entropy over labels"
SQUARED_ERROR = "squared error"
TOKENS = "mean negative log-likelihood per token"

MOST_LOGITS = 1 << 23  # at once, in float64


class LossUnknownError(Exception):
    """Losses cannot be computed; the message says why in one sentence."""


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of records, one each, in float64.

    Args:
        by_kind: (n,) each; several where the labels leave open which loss is meant, the likeliest first.
        hits: (n,) whether the likeliest class is the true one, 0 or 1; of language models the part of the counted
            tokens whose likeliest token is the true one. None for heads of other kinds.
        reason: Why there are none, in one sentence; None if there are.
        n_tokens: (n,) tokens that count; None for heads of other kinds.
    """

    by_kind: Mapping[str, FloatArray]
    hits: FloatArray | None
    reason: str | None
    n_tokens: IndexArray | None = None


@dataclass(eq=False)
class LossMeter:
    """Losses of batch after batch; after the first batch that has none, only the reason is kept."""

    reader: LayerReader
    _blocks: list[tuple[dict[str, FloatArray], FloatArray | None]] = field(default_factory=list)
    _reason: str | None = None
    _is_head_checked: bool = False
    _n_tokens: list[IndexArray] = field(default_factory=list)

    def add(self, batch: Batch, output: Any) -> None:
        """Measure one batch, on the model's device, from what the model returned for it."""
        if self._reason is not None:
            return
        try:
            self._blocks.append(self._measure(batch, output))
        except LossUnknownError as error:
            self._reason, self._blocks = str(error), []

    def finish(self) -> Losses:
        """The losses of all records so far."""
        if self._reason is None:
            kinds = [kind for kind in self._blocks[0][0] if all(kind in block for block, _ in self._blocks)]
            by_kind = {kind: np.concatenate([block[kind] for block, _ in self._blocks]) for kind in kinds}
            n_bad = {kind: int((~np.isfinite(values)).sum()) for kind, values in by_kind.items()}
            sound = {kind: values for kind, values in by_kind.items() if not n_bad[kind]}
            hits = [block for _, block in self._blocks if block is not None]
            if sound:
                is_known = len(hits) == len(self._blocks) and next(iter(sound)) in (CROSS_ENTROPY, BINARY, TOKENS)
                n_tokens = np.concatenate(self._n_tokens) if self._n_tokens else None
                return Losses(sound, np.concatenate(hits) if is_known else None, None, n_tokens)
            self._reason = (
                f"The losses of {min(n_bad.values())} records are NaN or infinite."
                if by_kind
                else "The labels are of different kinds in different batches."
            )
        return Losses({}, None, self._reason)

    def _measure(self, batch: Batch, output: Any) -> tuple[dict[str, FloatArray], FloatArray | None]:
        labels = batch.labels
        if labels is None:
            raise LossUnknownError("The data carries no labels.")
        if not isinstance(labels, Tensor):
            raise LossUnknownError("The labels are text, not class numbers, target values or token ids.")
        if self.reader.module is not self.reader.model or isinstance(output, HeadInput):
            return self._measure_words(batch, labels, output)
        logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
        if not isinstance(logits, Tensor):
            raise LossUnknownError(f"The model returns {type(output).__name__} without logits, so it has no task loss.")
        if logits.ndim == 3 and labels.shape == logits.shape[:2] and not labels.is_floating_point():
            return self._measure_tokens(batch, lambda row, place: logits[row, place])
        if logits.ndim < 1 or len(logits) != len(labels):
            raise LossUnknownError(_misfit(labels, logits))
        by_kind, hits = measure_outputs(logits, labels, self.reader.model)
        return by_kind, None if hits is None else hits.astype(np.float64)

    def _measure_words(self, batch: Batch, labels: Tensor, output: Any) -> tuple[dict[str, FloatArray], FloatArray]:
        """Losses of a language model whose head was not run: it sees the counted tokens only, now."""
        states = output.states if isinstance(output, HeadInput) else output[0]
        if labels.shape != states.shape[:2] or labels.is_floating_point():
            raise LossUnknownError(
                f"The labels of a language model must be token ids of the input's shape, {tuple(states.shape[1:2])} "
                f"per record; got {labels.dtype} of shape {tuple(labels.shape[1:])} per record."
            )
        try:
            if not self._is_head_checked:
                self._check_head(batch, output)
                self._is_head_checked = True
            return self._measure_tokens(batch, lambda row, place: self._run_head(states[row, place], output))
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            reason = shorten(error, takes_all=False)
            raise LossUnknownError(f"The vocabulary head cannot be run apart from its trunk: {reason}") from error

    def _check_head(self, batch: Batch, output: Any) -> None:
        """The head alone gives what the whole model gives, on the first record."""
        one = Batch(
            {key: value[:1] for key, value in batch.columns.items()}, None if batch.labels is None else batch.labels[:1]
        )
        inputs = self.reader.complete(one) if self.reader.is_apart else one.named
        whole = self.reader.model(*one.positional, **inputs).logits[0]
        if getattr(self.reader.model, "hf_quantizer", None) is not None:  # 8-bit states depend on the whole batch
            output = self.reader.run(one)
        apart = self._run_head((output.states if isinstance(output, HeadInput) else output[0])[0], output)
        allowed = torch.finfo(whole.dtype).eps ** 0.5 * (1 + whole.abs().max())
        if whole.shape != apart.shape or bool((whole - apart).abs().max() > allowed):
            raise LossUnknownError("The vocabulary head uses more than the last hidden state, so it was not run alone.")

    def _run_head(self, states: Tensor, output: Any) -> Tensor:
        """Logits (m, n_words) of hidden states (m, p): the model runs with its trunk answering what was read."""
        if isinstance(output, HeadInput):
            found: Tensor = output.head(states[None])[0]
            return found
        return run_head(self.reader.model, self.reader.module, states, output)

    def _measure_tokens(
        self, batch: Batch, score: Callable[[Tensor, Tensor], Tensor]
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        """Mean negative log-likelihood and accuracy per record over its counted tokens, a few thousand at a time.

        Args:
            batch: With token labels; -100 does not count, nor does padding.
            score: Rows and places of m tokens -> logits (m, n_words).
        """
        is_shifted, is_apart = heads.predicts_next_token(self.reader.model), self.reader.is_apart
        is_counted = batch.find_predicting(is_shifted=is_shifted, is_apart=is_apart)
        rows, places = is_counted.nonzero(as_tuple=True)
        n_of = is_counted.sum(dim=1).cpu().numpy()
        if not n_of.all():
            n_without = int((n_of == 0).sum())
            raise LossUnknownError(f"{n_without} of {len(n_of)} records have no labelled token to predict.")
        assert isinstance(batch.labels, Tensor)
        targets = batch.labels.to(rows.device)[rows, places + int(is_shifted)]
        losses, hits, done, size = [], [], 0, 1
        while done < len(rows):
            chosen = slice(done, done + size)
            logits = score(rows[chosen], places[chosen])
            if done == 0 and (int(targets.min()) < 0 or int(targets.max()) >= logits.shape[1]):
                raise LossUnknownError(
                    f"Token labels must be 0 to {logits.shape[1] - 1}, or -100 for tokens that do not count; "
                    f"got {int(targets.min())} to {int(targets.max())}."
                )
            exact = (logits.cpu() if logits.device.type == "mps" else logits).double()
            right = exact.gather(1, targets[chosen].to(exact.device)[:, None])[:, 0]
            losses.append((exact.logsumexp(dim=1) - right).cpu().numpy())
            hits.append((right >= exact.amax(dim=1)).cpu().numpy())
            done, size = done + size, max(1, MOST_LOGITS // logits.shape[1])
        owners = rows.cpu().numpy()
        means, accuracy = (
            np.bincount(owners, weights=np.concatenate(values), minlength=len(n_of)) / n_of for values in (losses, hits)
        )
        self._n_tokens.append(n_of)
        return {TOKENS: means}, accuracy


def measure_outputs(
    outputs: Tensor, labels: Tensor, model: nn.Module
) -> tuple[dict[str, FloatArray], npt.NDArray[np.bool_] | None]:
    """Losses of records from a model's outputs (n, ...), by kind of loss, and whether the likeliest class is true.

    Args:
        outputs: One row per record.
        labels: Class numbers (n,), target values (n,), or targets of the outputs' shape.
        model: Whose last layer tells whether outputs are probabilities.

    Example:
        >>> losses, hits = measure_outputs(torch.zeros(1, 2), torch.tensor([0]), nn.Identity())
        >>> {kind: values.round(4).tolist() for kind, values in losses.items()}, hits.tolist()
        ({'cross-entropy': [0.6931]}, [True])
    """
    values: FloatArray = outputs.detach().double().cpu().numpy()
    is_float, n = labels.is_floating_point(), len(values)
    targets = labels.detach().to("cpu", torch.float64 if is_float else torch.int64).numpy()
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if values.ndim == 1:
        values = values[:, None]
    losses: dict[str, FloatArray] = {}
    hits = None
    if targets.ndim == 1 and values.ndim == 2 and values.shape[1] > 1:
        losses, hits = _measure_classes(_undo_squashing(values, model), targets)
    elif targets.shape == (n,) and values.shape == (n, 1):
        logits = _undo_squashing(values, model)[:, 0]
        is_binary = bool(np.isin(targets, (0, 1)).all())
        # transformers takes float targets of one output for regression, whatever their values
        if is_binary and problem != "regression" and not (is_float and heads.is_huggingface(model)):
            losses[BINARY] = np.logaddexp(0, logits) - targets * logits
            hits = (logits > 0) == (targets > 0.5)
        if is_float or problem == "regression":
            losses[SQUARED_ERROR] = (values[:, 0] - targets) ** 2
        if not losses:
            raise LossUnknownError(
                f"For one output, whole-number labels must be 0 and 1; got {targets.min()} to {targets.max()} "
                "(targets of a regression must be floats)."
            )
    elif targets.shape == values.shape:
        is_between = bool(((targets >= 0) & (targets <= 1)).all())
        if values.ndim == 2 and is_between and problem != "regression":
            logits = _undo_squashing(values, model)
            losses[MULTI_LABEL] = (np.logaddexp(0, logits) - targets * logits).mean(axis=1)
        if is_float and problem != "multi_label_classification":
            losses[SQUARED_ERROR] = ((values - targets) ** 2).reshape(n, -1).mean(axis=1)
    if not losses:
        raise LossUnknownError(_misfit(labels, outputs))
    return losses, hits


def _measure_classes(
    logits: FloatArray, targets: npt.NDArray[Any]
) -> tuple[dict[str, FloatArray], npt.NDArray[np.bool_]]:
    """Cross-entropy of (n, n_classes) logits; equal scores go to the first class."""
    n_classes = logits.shape[1]
    if not (targets == np.floor(targets)).all():
        raise LossUnknownError(f"For {n_classes} outputs, labels must be whole numbers or one per output; got others.")
    if targets.min() < 0 or targets.max() >= n_classes:
        raise LossUnknownError(
            f"For {n_classes} outputs, labels must be classes 0 to {n_classes - 1}; "
            f"got {targets.min()} to {targets.max()}."
        )
    classes = targets.astype(np.int64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses: FloatArray = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(classes)), classes]
    return {CROSS_ENTROPY: losses}, logits.argmax(axis=1) == classes


def find_last_layer(model: nn.Module) -> nn.Module | None:
    """The last module that holds no others: a softmax or a sigmoid tells that outputs are probabilities."""
    return next((module for module in reversed(list(model.modules())) if not list(module.children())), None)


def _undo_squashing(values: FloatArray, model: nn.Module) -> FloatArray:
    """Logits, also of a model that ends in a softmax or a sigmoid."""
    last = find_last_layer(model)
    if not isinstance(last, nn.Softmax | nn.Sigmoid) or values.min() < 0 or values.max() > 1:
        return values
    least = np.finfo(np.float32).tiny
    if isinstance(last, nn.Softmax):
        return np.asarray(np.log(np.maximum(values, least)))
    return np.asarray(np.log(np.maximum(values, least)) - np.log(np.maximum(1 - values, least)))


def _misfit(labels: Tensor, outputs: Tensor) -> str:
    kind = str(labels.dtype).removeprefix("torch.")
    return (
        f"Labels of {kind} and shape {tuple(labels.shape[1:])} per record do not fit outputs of shape "
        f"{tuple(outputs.shape[1:])} per record."
    )
