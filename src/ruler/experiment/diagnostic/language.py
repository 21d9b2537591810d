"""Masked and causal language models: one pretrained model, fine-tuned and unlearned on sentences or on prompts."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from ruler.core.determinism import full_precision, seeded
from ruler.core.types import IndexArray
from ruler.embeddings.language.tokens import HEAD_INPUT, Precision, read_tokens
from ruler.embeddings.prompts import encode_prompts
from ruler.experiment.diagnostic.data import MOST_PROMPT_TOKENS, PROMPT_FORM, Completing, DiagnosticData, Language
from ruler.experiment.diagnostic.trainers import ModelOutputs, Trainer, repeat_exactly, shorten
from ruler.experiment.grid import Cell
from ruler.metrics.peers.language import read_language_model
from ruler.models.language_models import load_causal_language_model, load_masked_language_model
from ruler.training.checkpoints import CheckpointStore, Recipe, describe_training, hash_arrays
from ruler.training.loop import optimize
from ruler.training.sentences import ASKED, NOT_ASKED, Completions, MaskedSentences, Preferences, locate_asked
from ruler.training.settings import TrainingSettings
from ruler.training.steps import compute_logits, cross_entropy
from ruler.unlearning import METHODS, draw_refusals, unlearn

READ_BLOCK = 256
READ_TOKENS = 32768  # per forward pass of a causal model
ASKED_SHARE = 0.15
READ_SEED = 7  # the same tokens are asked of every model
HEAD_SEED = 0
HEAD_TRAINING = TrainingSettings(
    epochs=10, batch_size=32, optimizer="adamw", learning_rate=2e-4, weight_decay=0.01, schedule="one_cycle"
)
"""Of a language model whose head was not in its file: the whole model, on documents that no study uses."""


class LanguageTrainer(Trainer):
    """Models of texts.

    Args:
        data: Of the cells' dataset.
        device: Where models and sentences lie.
        store: Keeps the pretrained model once its head is trained.
    """

    def __init__(self, data: DiagnosticData, device: str, store: CheckpointStore) -> None:
        assert isinstance(data.language, Language)
        self._language: Language = data.language
        self._device, self._store = device, store
        distinct, place = data.distinct
        self._distinct = torch.from_numpy(distinct).to(device)
        self._place = torch.from_numpy(place).to(device)
        self._bases: dict[tuple[str, str | None], nn.Module] = {}

    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """Fine-tune the pretrained model on these sentences."""
        with seeded(seed), repeat_exactly(self._device):
            model = copy.deepcopy(self.load_base(cell))
            optimize(model, cross_entropy, {"data": self._select(rows)}, self.choose_training(cell), seed=seed)
        return model.eval()

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method to the model."""
        settings, gone, kept = self.choose_unlearning(cell), self._select(forget), self._select(retain)
        with repeat_exactly(self._device):
            return unlearn(cell.method, model, forget=gone, retain=kept, settings=settings)

    @torch.inference_mode()
    @full_precision(torch)
    def read(self, model: nn.Module) -> ModelOutputs:
        """Read [CLS] of every sentence as it is, in full precision; loss and hits on a fixed draw of masked tokens."""
        model.eval()
        trunk: Any = getattr(model, str(model.base_model_prefix))
        blocks, losses, hits = [], [], []
        for tokens, places, labels in self._blocks:
            seen = {"input_ids": tokens, "attention_mask": self._attend(tokens)}
            blocks.append(trunk(**seen).last_hidden_state[:, 0])
            loss, hit = self._answer(model, tokens, places, labels)
            losses.append(loss)
            hits.append(hit)
        place = torch.argsort(self._order)[self._place]  # of each record among the sentences in the order of lengths
        scores = [torch.cat(part)[place].cpu().numpy() for part in (losses, hits)]
        return ModelOutputs(torch.cat(blocks)[place], scores[0], scores[1])

    def _answer(
        self, model: nn.Module, tokens: torch.Tensor, places: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss and share of hits of each sentence; outputs need no more than half precision on a GPU."""
        is_asked = labels != NOT_ASKED
        hidden = tokens.scatter(
            1, places, tokens.gather(1, places).masked_fill(is_asked, self._language.vocabulary.mask_id)
        )
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
            logits = compute_logits(model, {"input_ids": hidden, "attention_mask": self._attend(tokens), ASKED: places})
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=NOT_ASKED, reduction="none")
        hit = (logits.argmax(2) == labels) & is_asked
        n_asked = is_asked.sum(1).clamp(min=1)
        return loss.double().sum(1) / n_asked, hit.double().sum(1) / n_asked

    @cached_property
    def _order(self) -> torch.Tensor:
        """Sentences by length: blocks of similar lengths are cut to the longest, so that little of them is padding."""
        return torch.argsort(self._attend(self._distinct).sum(1), stable=True)

    @cached_property
    def _blocks(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Tokens, and places and labels of those that are asked for, in the order of lengths."""
        blocks = []
        for rows in torch.split(self._order, READ_BLOCK):
            n_tokens = int(self._attend(self._distinct[rows]).sum(1).max())
            tokens, is_asked = self._distinct[rows, :n_tokens], self.is_asked[rows, :n_tokens]
            blocks.append((tokens, *locate_asked(tokens.where(is_asked, NOT_ASKED))))
        return blocks

    @cached_property
    def is_asked(self) -> torch.Tensor:
        """Which tokens of the distinct sentences every model is asked for: a fixed draw of the ordinary ones.

        At least one token per sentence is drawn.
        """
        tokens = self._distinct.cpu()
        is_ordinary = ~torch.isin(tokens, torch.tensor(self._language.vocabulary.special_ids))
        draw = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(READ_SEED))
        draw = draw.where(is_ordinary, torch.inf)
        is_least = draw == draw.amin(1, keepdim=True)
        return (((draw < ASKED_SHARE) | is_least) & is_ordinary).to(self._device)

    def _attend(self, tokens: torch.Tensor) -> torch.Tensor:
        return (tokens != self._language.vocabulary.pad_id).long()

    def _select(self, rows: IndexArray) -> MaskedSentences:
        return self._mask(self._distinct[self._place[torch.from_numpy(rows).to(self._device)]])

    def _mask(self, tokens: torch.Tensor) -> MaskedSentences:
        words = self._language.vocabulary
        return MaskedSentences(
            tokens,
            self._attend(tokens),
            mask_id=words.mask_id,
            special_ids=words.special_ids,
            vocab_size=words.size,
        )

    def load_base(self, cell: Cell) -> nn.Module:
        """The model that original and oracle start from; a head that its folder lacks is trained once."""
        if (cell.size, cell.precision) not in self._bases:
            with seeded(HEAD_SEED):
                model, has_head = load_masked_language_model(self._language.folder)
            model.to(self._device)
            if not has_head:
                settings = shorten(replace(HEAD_TRAINING, precision=cell.precision or "float32"), cell)
                recipe = describe_head(model, self._language, settings, self._device)
                model.load_state_dict(self._store.get_or_train(recipe, lambda: self._train_head(model, settings)))
            self._bases[cell.size, cell.precision] = model.eval()
        return self._bases[cell.size, cell.precision]

    def _train_head(self, model: nn.Module, settings: TrainingSettings) -> dict[str, Any]:
        with seeded(HEAD_SEED):
            tokens = torch.from_numpy(self._language.head_tokens).to(self._device)
            optimize(model, cross_entropy, {"data": self._mask(tokens)}, settings, seed=HEAD_SEED)
        return model.state_dict()


def describe_head(model: nn.Module, language: Language, settings: TrainingSettings, device: str) -> Recipe:
    """What decides the weights of a model whose head is trained here: the key under which it is kept."""
    place = device if device == "cpu" else f"{device}, repeatably"
    weights = hash_arrays(*(value.cpu().numpy() for value in model.state_dict().values()))
    return describe_training(
        model,
        language.head_tokens,
        np.zeros(0),
        partition=None,
        settings=settings,
        seed=HEAD_SEED,
        trainer=f"masked language modelling of asked tokens on {place}, from weights {weights}",
    )


class CausalTrainer(Trainer):
    """Models of prompts.

    Args:
        data: Of the cells' dataset.
        device: Where models and records lie.
    """

    def __init__(self, data: DiagnosticData, device: str) -> None:
        assert isinstance(data.language, Completing)
        self._language, self._device = data.language, device
        self._tokens = torch.from_numpy(data.inputs).to(device)
        self._labels = torch.from_numpy(data.language.labels).to(device)
        model, self.tokenizer = load_causal_language_model(data.language.folder)
        self.base: nn.Module = model.to(device)
        self._encode_once = cache(self._encode_peers)

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
        data = self._encode_once(*(tuple(rows.tolist()) for rows in (forget, held_out)))
        precision: Precision = "float32" if self._device == "cpu" else "bfloat16"  # as peers do; ours are read in full
        given = read_language_model(model, data, original=original, precision=precision, batch_tokens=READ_TOKENS)
        del given["held_out_states"]  # for the linear probe, which takes a minute per model
        return given

    def _encode_peers(self, forget: tuple[int, ...], held_out: tuple[int, ...]) -> dict[str, dict[str, torch.Tensor]]:
        """The records that peers' metrics read: the same of every model, so encoded once."""
        rows = np.array(forget)
        data = {
            "forget": self._encoded(rows),
            "held_out": self._encoded(np.array(held_out)),
            "entities": self._mark_spans(rows),
        }
        texts = self._language.prompts.select(rows)
        if all(texts.paraphrases) and len({len(wrong) for wrong in texts.perturbations} | {0}) == 2:
            prompts = [prompt for prompt, wrong in zip(texts.prompts, texts.perturbations, strict=True) for _ in wrong]
            wrong = [answer for answers in texts.perturbations for answer in answers]
            data["paraphrased"] = self.encode(texts.prompts, texts.paraphrases)
            data["perturbed"] = self.encode(prompts, wrong)
        return data

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
