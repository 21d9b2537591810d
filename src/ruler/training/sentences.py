"""Tokenised texts -> language modelling: hidden tokens of a sentence, or the completion of a prompt, are asked for."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from ruler.core.checks import check_number
from ruler.core.errors import InputError

NOT_ASKED = -100
"""The label of a token that the model is not asked for; the value that torch and transformers use."""

ASKED = "asked"
"""Among a model's inputs, the (n, a) places of the tokens that are asked for."""

_SLOTS = 8  # places per sentence come in multiples of this, so that batches have few shapes
_WIDTH = 32  # tokens: batches are cut to multiples of this
_WINDOW = 16  # batches whose records are sorted by length among themselves
_SHARE_MASKED, _SHARE_REPLACED = 0.8, 0.1  # of the asked tokens; the rest stand as they are (Devlin et al. 2019)


class _Tokens:
    """Records as token numbers (n, t), padded to one length."""

    input_ids: torch.Tensor

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def n_elements(self) -> int:
        """Numbers per record."""
        return self.input_ids.shape[1]


class MaskedSentences(_Tokens):
    """A source of records for masked language modelling: the tokens to guess are chosen anew in every draw.

    Of the asked tokens 80% become the mask, 10% another word at random, and 10% stay. The choice follows the
    generator of whoever draws and is the same on every device.

    Args:
        input_ids: (n, t) token numbers, padded to one length.
        attention_mask: (n, t), 1 for tokens and 0 for padding.
        mask_id: The number of the mask token.
        special_ids: Tokens that are never asked for ([CLS], [SEP], padding).
        vocab_size: How many tokens there are.
        share: Of the tokens that are asked for, on average.

    Raises:
        InputError: Shapes that differ, token numbers outside the vocabulary, or a share outside (0, 1].

    Example:
        >>> ids = torch.tensor([[101, 7, 8, 9, 102, 0]])
        >>> sentences = MaskedSentences(ids, ids > 0, mask_id=103, special_ids=(101, 102, 0), vocab_size=200, share=1)
        >>> inputs, labels = sentences.draw(torch.tensor([0]), torch.Generator().manual_seed(0))
        >>> inputs["asked"].tolist(), labels.tolist()
        ([[1, 2, 3, 0, 4, 5]], [[7, 8, 9, -100, -100, -100]])
    """

    def __init__(
        self,
        input_ids: npt.ArrayLike | torch.Tensor,
        attention_mask: npt.ArrayLike | torch.Tensor,
        *,
        mask_id: int,
        special_ids: Sequence[int],
        vocab_size: int,
        share: float = 0.15,
    ) -> None:
        self.input_ids, self.attention_mask = _as_numbers(input_ids), _as_numbers(attention_mask)
        self.mask_id, self.vocab_size, self.share = int(mask_id), int(vocab_size), float(share)
        self.special_ids = tuple(int(token) for token in special_ids)
        self._n_slots = 1
        shape = tuple(self.input_ids.shape)
        if len(shape) != 2 or 0 in shape or tuple(self.attention_mask.shape) != shape:
            raise InputError(
                "input_ids and attention_mask must both be (n, t) with at least one sentence; "
                f"got {shape} and {tuple(self.attention_mask.shape)}. Pad all sentences to one length."
            )
        check_number(self.share, "share", minimum=0, is_strict=True)
        if self.share > 1:
            raise InputError(f"share must be at most 1; got {self.share!r}.")
        low, high = int(self.input_ids.min()), int(self.input_ids.max())
        if low < 0 or max(high, self.mask_id) >= self.vocab_size:
            raise InputError(
                f"input_ids and mask_id must be token numbers below vocab_size, {self.vocab_size}; "
                f"got {low} to {high} and {self.mask_id}. Give the model's own vocabulary size."
            )

    def to(self, device: torch.device) -> "MaskedSentences":
        """The same sentences on a device."""
        return MaskedSentences(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            mask_id=self.mask_id,
            special_ids=self.special_ids,
            vocab_size=self.vocab_size,
            share=self.share,
        )

    def draw(self, rows: torch.Tensor, generator: torch.Generator) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Sentences by row, freshly masked: the model's inputs, and what is asked of it.

        Args:
            rows: (n,) sentence numbers.
            generator: On the CPU.

        Returns:
            Inputs with the places that are asked for under ``"asked"``, and labels (n, a) of these places; a sentence
            that is asked for fewer has -100 for the others.
        """
        rows = rows.to(self.input_ids.device)
        tokens, attention = self.input_ids[rows], self.attention_mask[rows]
        chance = torch.rand(tokens.shape, generator=generator).to(tokens.device)
        words = torch.randint(self.vocab_size, tokens.shape, generator=generator).to(tokens.device)
        special = torch.tensor(self.special_ids, dtype=torch.long, device=tokens.device)
        can_ask = attention.bool() & ~torch.isin(tokens, special)
        labels = tokens.where(can_ask & (chance < self.share), NOT_ASKED)
        is_asked, fate = labels != NOT_ASKED, chance / self.share
        hidden = tokens.masked_fill(is_asked & (fate < _SHARE_MASKED), self.mask_id)
        is_replaced = is_asked & (fate >= _SHARE_MASKED) & (fate < _SHARE_MASKED + _SHARE_REPLACED)
        places, labels = locate_asked(labels, at_least=self._n_slots)
        self._n_slots = labels.shape[1]  # never fewer again: steps of one shape can be replayed
        return {"input_ids": words.where(is_replaced, hidden), "attention_mask": attention, ASKED: places}, labels


class Completions(_Tokens):
    """A source of records for causal language modelling: each token of a completion is asked for, given all before it.

    Padding follows the last token, where no earlier token can see it, so the model needs no attention mask.

    Args:
        input_ids: (n, t) token numbers, padded on the right to one length.
        labels: (n, t) the same numbers on the tokens of the completion, -100 elsewhere.

    Raises:
        InputError: Shapes that differ, a record without a completion, or a completion that starts with the first token.

    Example:
        >>> completions = Completions(torch.tensor([[7, 8, 9, 0]]), torch.tensor([[-100, -100, 9, -100]]))
        >>> inputs, labels = completions.draw(torch.tensor([0]))
        >>> inputs["asked"].tolist(), labels.tolist()  # the second token must give the third
        ([[1, 0, 2]], [[9, -100, -100]])
    """

    def __init__(self, input_ids: npt.ArrayLike | torch.Tensor, labels: npt.ArrayLike | torch.Tensor) -> None:
        self.input_ids, self.labels = _as_numbers(input_ids), _as_numbers(labels)
        shape = tuple(self.input_ids.shape)
        if len(shape) != 2 or len(self.input_ids) == 0 or shape[1] < 2 or tuple(self.labels.shape) != shape:
            raise InputError(
                "input_ids and labels must both be (n, t) with at least one record of two tokens; "
                f"got {shape} and {tuple(self.labels.shape)}. Pad all records to one length."
            )
        is_asked = self.labels != NOT_ASKED
        n_empty, n_bare = int((~is_asked.any(1)).sum()), int(is_asked[:, 0].sum())
        if n_empty or n_bare:
            raise InputError(
                "labels must mark a completion that follows at least one token of its prompt in every record; "
                f"got {n_empty} without a completion and {n_bare} without a prompt."
            )
        self._places, self._asked = locate_asked(self.labels[:, 1:])
        ends = (is_asked * torch.arange(1, shape[1] + 1, device=is_asked.device)).amax(1).cpu()
        self._widths = (-(-ends // _WIDTH) * _WIDTH).clamp(max=shape[1])  # what follows a completion is never read
        n_asked = is_asked.sum(1).cpu()
        # so many places for all records of a width: batches have few shapes, which captured steps need
        self._n_places = {
            width: -(-int(n_asked[self._widths <= width].max()) // _SLOTS) * _SLOTS
            for width in sorted(set(self._widths.tolist()))
        }

    def to(self, device: torch.device) -> "Completions":
        """The same records on a device."""
        return Completions(self.input_ids.to(device), self.labels.to(device))

    def draw(
        self, rows: torch.Tensor, generator: torch.Generator | None = None
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Records by row: the model's inputs with the places (n, a) that are asked, and what is asked there.

        Args:
            rows: (n,) record numbers.
            generator: Not needed: nothing is drawn at random.
        """
        rows = rows.to(self.input_ids.device)
        return {"input_ids": self.input_ids[rows], ASKED: self._places[rows]}, self._asked[rows]

    def split(
        self, order: torch.Tensor, size: int, generator: torch.Generator
    ) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Batches of records that are about equally long, cut where the longest ends.

        Records are drawn in ``order``; every sixteen batches are sorted by length among themselves, and handed out in
        random order.

        Args:
            order: (m,) record numbers, on the CPU.
            size: Records per batch.
            generator: On the CPU.
        """
        for window in torch.split(order, _WINDOW * size):
            window = window[self._widths[window].argsort(stable=True)]
            parts = torch.split(window, size)
            for part in torch.randperm(len(parts), generator=generator).tolist():
                width = int(self._widths[parts[part]].max())
                inputs, asked = self.draw(parts[part])
                n_places = min(self._n_places[width], asked.shape[1])
                cut = {"input_ids": inputs["input_ids"][:, :width], ASKED: inputs[ASKED][:, :n_places]}
                yield cut, asked[:, :n_places]


class Preferences:
    """A source of records with two completions per prompt, of which the model is to prefer one.

    Args:
        dispreferred: The completions to forget.
        preferred: As many records, in the same order: the same prompts with what should be said instead.

    Raises:
        InputError: Not as many of both.

    Example:
        >>> said = Completions(torch.tensor([[7, 8, 9]]), torch.tensor([[-100, -100, 9]]))
        >>> wanted = Completions(torch.tensor([[7, 8, 3, 4]]), torch.tensor([[-100, -100, 3, 4]]))
        >>> inputs, labels, (other, other_labels) = Preferences(said, wanted).draw(torch.tensor([0]))
        >>> labels.tolist(), other_labels.tolist()
        ([[9, -100]], [[3, 4, -100]])
    """

    def __init__(self, dispreferred: Completions, preferred: Completions) -> None:
        if len(dispreferred) != len(preferred):
            raise InputError(
                f"preferred must hold one record per dispreferred one, {len(dispreferred)}; got {len(preferred)}. "
                "Pair them by row."
            )
        self.dispreferred, self.preferred = dispreferred, preferred

    def __len__(self) -> int:
        return len(self.dispreferred)

    @property
    def n_elements(self) -> int:
        """Numbers per record."""
        return self.dispreferred.n_elements + self.preferred.n_elements

    def to(self, device: torch.device) -> "Preferences":
        """The same records on a device."""
        return Preferences(self.dispreferred.to(device), self.preferred.to(device))

    def draw(
        self, rows: torch.Tensor, generator: torch.Generator | None = None
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Records by row: inputs and labels of the dispreferred completions, and a pair of those of the preferred."""
        return (*self.dispreferred.draw(rows), self.preferred.draw(rows))


TokenSource = MaskedSentences | Completions | Preferences
"""Records whose tokens are asked for, rather than one label per record."""


def _as_numbers(values: npt.ArrayLike | torch.Tensor) -> torch.Tensor:
    return (values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))).long()


def locate_asked(labels: torch.Tensor, *, at_least: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels (n, t) of all tokens -> places (n, a) that hold all that are asked for, in order, and their labels.

    The number of places is that of the sentence with the most, rounded up; they are few, and a vocabulary is long.

    Args:
        labels: -100 where nothing is asked.
        at_least: So many places in any case.

    Example:
        >>> places, labels = locate_asked(torch.tensor([[-100] * 9 + [5, 6], [-100] * 11]))
        >>> places.shape, places[0, :2].tolist(), labels[0, :3].tolist()
        (torch.Size([2, 8]), [9, 10], [5, 6, -100])
    """
    is_asked = labels != NOT_ASKED
    most = max(at_least, int(is_asked.sum(1).max()))
    n_slots = min(labels.shape[1], -(-most // _SLOTS) * _SLOTS)
    places = is_asked.byte().argsort(dim=1, descending=True, stable=True)[:, :n_slots]
    return places, labels.gather(1, places)
