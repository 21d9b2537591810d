"""Causal language models: one pretrained model, fine-tuned and unlearned on prompts with their completions."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ruler.core.determinism import seeded
from ruler.core.types import IndexArray
from ruler.embeddings.language.tokens import HEAD_INPUT, Precision, read_tokens
from ruler.embeddings.prompts import encode_prompts
from ruler.experiment.diagnostic.data import MOST_PROMPT_TOKENS, PROMPT_FORM, Completing, DiagnosticData
from ruler.experiment.diagnostic.trainers import ModelOutputs, choose_training, choose_unlearning, repeat_exactly
from ruler.experiment.grid import Cell
from ruler.metrics.peers.language import read_language_model
from ruler.models.language_models import load_causal_language_model
from ruler.training.loop import optimize
from ruler.training.sentences import NOT_ASKED, Completions, Preferences
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import METHODS, UnlearningSettings, draw_refusals, unlearn

READ_TOKENS = 32768  # per forward pass


class CausalTrainer:
    """Models of prompts.

    Args:
        data: Of the cells' dataset.
        device: Where models and records lie.
    """

    choose_training: Callable[[Cell], TrainingSettings] = staticmethod(choose_training)
    choose_unlearning: Callable[[Cell], UnlearningSettings] = staticmethod(choose_unlearning)

    def __init__(self, data: DiagnosticData, device: str) -> None:
        assert isinstance(data.language, Completing)
        self._language, self._device = data.language, device
        self._tokens = torch.from_numpy(data.inputs).to(device)
        self._labels = torch.from_numpy(data.language.labels).to(device)
        model, self.tokenizer = load_causal_language_model(data.language.folder)
        self.base: nn.Module = model.to(device)

    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """Fine-tune the pretrained model on these records."""
        with seeded(seed), repeat_exactly(self._device):
            model = copy.deepcopy(self.base)
            optimize(model, cross_entropy, {"data": self.select(rows)}, self.choose_training(cell), seed=seed)
        return model.eval()

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method to the model.

        An epoch has as many records as are to be forgotten, whichever side the method counts by: all methods take the
        same number of steps.
        """
        settings = replace(self.choose_unlearning(cell), records_per_epoch=len(forget))
        gone: Completions | Preferences = self.select(forget)
        if METHODS[cell.method].kind == "preferences":
            prompts = self._language.prompts.select(forget).prompts
            refusals = self.encode(prompts, draw_refusals(len(prompts)))
            gone = Preferences(self.select(forget), Completions(refusals["input_ids"], refusals["labels"]))
        with repeat_exactly(self._device):
            return unlearn(cell.method, model, forget=gone, retain=self.select(retain), settings=settings)

    def read(self, model: nn.Module) -> ModelOutputs:
        """Read every record in full precision: the mean state, in each layer, of places that predict a completion."""
        reading = read_tokens(model, self._encoded(slice(None)), hidden="mean", batch_tokens=READ_TOKENS)
        return ModelOutputs(
            torch.from_numpy(reading.hidden[HEAD_INPUT]).to(self._device),
            reading.losses,
            reading.hits.sum(axis=1) / reading.lengths,
            reading.hidden,
        )

    def read_peers(
        self, model: nn.Module, forget: IndexArray, held_out: IndexArray, original: nn.Module | None = None
    ) -> dict[str, Any]:
        """What peers' metrics are computed from, by the names of `ruler.metrics.peers.NEEDS`.

        Args:
            original: Into which the model's states are patched; without it there is no UDS.
        """
        data = {
            "forget": self._encoded(forget),
            "held_out": self._encoded(held_out),
            "entities": self._mark_spans(forget),
        }
        texts = self._language.prompts.select(forget)
        if all(texts.paraphrases) and len({len(wrong) for wrong in texts.perturbations} | {0}) == 2:
            prompts = [prompt for prompt, wrong in zip(texts.prompts, texts.perturbations, strict=True) for _ in wrong]
            wrong = [answer for answers in texts.perturbations for answer in answers]
            data["paraphrased"] = self.encode(texts.prompts, texts.paraphrases)
            data["perturbed"] = self.encode(prompts, wrong)
        precision: Precision = "float32" if self._device == "cpu" else "bfloat16"  # as peers do; ours are read in full
        given = read_language_model(model, data, original=original, precision=precision, batch_tokens=READ_TOKENS)
        del given["held_out_states"]  # for the linear probe, which takes a minute per model
        return given

    def _mark_spans(self, rows: IndexArray) -> dict[str, torch.Tensor]:
        """These records with labels on their decisive words alone; on whole completions where none are marked."""
        texts = self._language.prompts.select(rows)
        marked = [row for row, span in enumerate(texts.spans) if span is not None]
        if not marked:
            return self._encoded(rows)
        texts = texts.select(marked)
        words = [text[slice(*span)] for text, span in zip(texts.completions, texts.spans, strict=True) if span]
        found = self.encode(texts.prompts, texts.completions, spans=words)
        return {**found, "labels": found["labels"].where(found["span_mask"] == 1, NOT_ASKED)}

    def _encoded(self, rows: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[rows], "labels": self._labels[rows]}

    def encode(
        self, prompts: Sequence[str], completions: Sequence[str], spans: Sequence[str] | None = None
    ) -> dict[str, torch.Tensor]:
        """Other completions in the form of the study."""
        form = {"form": PROMPT_FORM, "max_tokens": MOST_PROMPT_TOKENS}
        return encode_prompts(self.tokenizer, prompts, completions, spans=spans, **form)  # type: ignore[arg-type]

    def select(self, rows: IndexArray) -> Completions:
        """These records, for training."""
        index = torch.from_numpy(np.asarray(rows)).to(self._device)
        return Completions(self._tokens[index], self._labels[index])
