"""Prompts and completions -> what language models are fed, with labels that count on the completion alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ruler.core.checks import check_number
from ruler.core.errors import InputError, shorten
from ruler.core.readers.safety import limit, say_how_to_raise
from ruler.embeddings.inputs import IGNORED_TOKEN

PLAIN = "{prompt}{completion}"

_Row = tuple[list[int], list[int], list[int]]
"""Tokens, labels, and marks of a span, which are empty without one."""


@dataclass(frozen=True)
class _Text:
    """One record: its whole text, where in it the completion begins, and which characters are marked, if any."""

    whole: str
    start: int
    span: tuple[int, int] | None


def encode_prompts(
    tokenizer: Any,
    prompts: Sequence[str],
    completions: Sequence[str],
    *,
    template: bool = False,
    form: str = PLAIN,
    max_tokens: int = 2048,
    spans: Sequence[str] | None = None,
    is_encoder_decoder: bool = False,
) -> dict[str, Tensor]:
    r"""Tokens of prompts and completions, in the convention of Hugging Face.

    A prompt and its completion are joined to one text and that is tokenized, as in training on the whole text. Tokens
    that hold at least one character of the completion count, and the end-of-sequence token behind them, which is added
    if the tokenizer has one. A text is never cut.

    Args:
        tokenizer: Of transformers, one that knows the characters of its tokens ("fast").
        prompts: What is asked, n texts; may be empty texts.
        completions: What is answered, n texts, none empty.
        template: Join them by the tokenizer's chat template, as a user's and an assistant's turn.
        form: How they are joined otherwise: any text with ``{prompt}`` and, at its end, ``{completion}``, such as
            ``"Question: {prompt}\nAnswer: {completion}"``. By default one stands directly behind the other.
        max_tokens: Of one record; a longer one is refused.
        spans: Of each completion a part that is marked, such as the name in an answer; "" marks it all.
        is_encoder_decoder: Prompts alone become ``input_ids``, completions ``labels``, as T5 and BART take them.

    Returns:
        ``input_ids`` and ``attention_mask`` (n, t), padded on the right, and ``labels`` (n, t): -100 except on tokens
        of completions. With spans also ``span_mask``, in the shape of the labels. All are int64.

    Raises:
        InputError: Lists of unequal length, an empty completion, a span that is not in its completion, a record that
            is too long, or a tokenizer without a chat template or without places of characters.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = Tokenizer(models.WordLevel({"</s>": 0, "sky": 1, "?": 2, "blue": 3}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>")
        >>> batch = encode_prompts(tokenizer, ["sky ?"], ["blue"])
        >>> batch["input_ids"].tolist(), batch["labels"].tolist()
        ([[1, 2, 3, 0]], [[-100, -100, 3, 0]])
    """
    texts = _join_texts(tokenizer, prompts, completions, spans, template=template, form=form)
    check_number(max_tokens, "max_tokens", minimum=2, is_whole=True)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"tokenizer must know which characters its tokens hold; got {type(tokenizer).__name__}, which does not. "
            "Load it with AutoTokenizer, as a fast one."
        )
    # a chat template writes its special tokens itself
    encode = _encode_apart if is_encoder_decoder else _encode_whole
    rows = encode(tokenizer, texts, adds_special=not template)
    too_long = [n for n, (tokens, labels, _) in enumerate(rows) if max(len(tokens), len(labels)) > max_tokens]
    if too_long:
        longest = max(max(len(tokens), len(labels)) for tokens, labels, _ in rows)
        raise InputError(
            f"records must have at most {max_tokens} tokens; got up to {longest}, in {len(too_long)} of {len(rows)} "
            f"records, the first of them number {too_long[0] + 1}. Shorten them, or raise max_tokens as far as the "
            "model reads."
        )
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
    batch = {
        "input_ids": _pad([tokens for tokens, _, _ in rows], pad),
        "attention_mask": _pad([[1] * len(tokens) for tokens, _, _ in rows], 0),
        "labels": _pad([labels for _, labels, _ in rows], IGNORED_TOKEN),
    }
    return batch if spans is None else {**batch, "span_mask": _pad([marks for _, _, marks in rows], 0)}


def _join_texts(
    tokenizer: Any,
    prompts: Sequence[str],
    completions: Sequence[str],
    spans: Sequence[str] | None,
    *,
    template: bool,
    form: str,
) -> list[_Text]:
    parts = {"prompts": prompts, "completions": completions} | ({} if spans is None else {"spans": spans})
    for name, texts in parts.items():
        if isinstance(texts, str) or len(texts) != len(prompts) or not all(isinstance(one, str) for one in texts):
            raise InputError(f"{name} must be texts, as many as prompts ({len(prompts)}); got others.")
        if any(len(one) > limit("text_characters") for one in texts):
            raise InputError(
                f"{name} must have at most {limit('text_characters'):,} characters each; got more. "
                f"{say_how_to_raise('text_characters')}"
            )
    blank = next((n for n, text in enumerate(completions, 1) if not text.strip()), None)
    if not prompts or blank:
        raise InputError(f"completions must hold text; got {f'none in record {blank}' if prompts else 'no records'}.")
    before, has_prompt, rest = form.partition("{prompt}")
    between, has_completion, after = rest.partition("{completion}")
    if not (has_prompt and has_completion) or after:
        raise InputError(f"form must hold {{prompt}} and end in {{completion}}; got {form!r}.")
    joined = []
    for n, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        if template:
            head, whole = _apply_template(tokenizer, prompt, completion)
        else:
            head = f"{before}{prompt}{between}"
            whole = head + completion
        start = whole.find(completion.strip(), len(head)) if template else len(head)
        end = start + len(completion.strip() if template else completion)
        span = None if spans is None else _find_span(spans[n], whole, start, end, n + 1)
        joined.append(_Text(whole, len(head), span))
    return joined


def _apply_template(tokenizer: Any, prompt: str, completion: str) -> tuple[str, str]:
    """A conversation up to where the assistant speaks, and the whole of it."""
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("template must be used with a tokenizer that has a chat template; got one without.")
    question, answer = {"role": "user", "content": prompt}, {"role": "assistant", "content": completion}
    try:
        head: str = tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
        whole: str = tokenizer.apply_chat_template([question, answer], tokenize=False)
    except Exception as error:  # a template is a program of its own
        raise InputError(
            f"the tokenizer's chat template must take a question and an answer; {shorten(error)}"
        ) from error
    if not whole.startswith(head) or completion.strip() not in whole[len(head) :]:
        raise InputError(
            "the tokenizer's chat template must put the answer, as it is, behind the question; got another order. "
            "Write out the texts and leave template out."
        )
    return head, whole


def _find_span(span: str, whole: str, start: int, end: int, number: int) -> tuple[int, int]:
    place = whole.find(span, start, end) if span else start
    if place < 0:
        raise InputError(
            f"spans must be parts of their completions; got {span!r:.80} in record {number}, which lacks it."
        )
    return place, place + len(span) if span else end


def _encode_whole(tokenizer: Any, texts: list[_Text], *, adds_special: bool) -> list[_Row]:
    """Rows whose tokens, labels and marks have the same length: one stack of layers reads prompt and completion."""
    eos = tokenizer.eos_token_id
    rows = []
    found = _tokenize(tokenizer, [text.whole for text in texts], adds_special=adds_special)
    for text, (tokens, places) in zip(texts, found, strict=True):
        first = next((n for n, (_, stop) in enumerate(places) if stop > text.start), None)
        if first is None:
            raise InputError(f"completions must have tokens; got none for {text.whole[text.start :]!r:.80}.")
        if eos is not None and adds_special and tokens[-1] != eos:
            tokens, places = [*tokens, eos], [*places, (0, 0)]
        elif eos is not None and eos in tokens[first:]:  # a template may write a line break behind it
            n_kept = len(tokens) - tokens[::-1].index(eos)
            tokens, places = tokens[:n_kept], places[:n_kept]
        labels = [IGNORED_TOKEN] * first + tokens[first:]
        rows.append((tokens, labels, _mark_span(text.span, places, first)))
    return rows


def _encode_apart(tokenizer: Any, texts: list[_Text], *, adds_special: bool) -> list[_Row]:
    """Rows of an encoder's prompt and a decoder's completion, which has the marks."""
    eos = tokenizer.eos_token_id
    heads = _tokenize(tokenizer, [text.whole[: text.start] for text in texts], adds_special=adds_special)
    tails = _tokenize(
        tokenizer, [text.whole[text.start :] for text in texts], adds_special=adds_special, is_target=True
    )
    rows = []
    for text, (prompt, _), (tokens, places) in zip(texts, heads, tails, strict=True):
        if eos is not None and tokens[-1:] != [eos]:
            tokens, places = [*tokens, eos], [*places, (0, 0)]
        span = None if text.span is None else (text.span[0] - text.start, text.span[1] - text.start)
        rows.append((prompt, tokens, _mark_span(span, places, 0)))
    return rows


def _tokenize(
    tokenizer: Any, texts: list[str], *, adds_special: bool, is_target: bool = False
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Tokens of each text, and the characters that each token holds."""
    named = {"text_target": texts} if is_target else {"text": texts}
    found = tokenizer(**named, add_special_tokens=adds_special, return_offsets_mapping=True, truncation=False)
    return list(zip(found["input_ids"], found["offset_mapping"], strict=True))


def _mark_span(span: tuple[int, int] | None, places: list[tuple[int, int]], first: int) -> list[int]:
    """1 for tokens from ``first`` on that hold a character of the span, else 0."""
    if span is None:
        return []
    start, stop = span
    return [int(n >= first and one < stop and other > start) for n, (one, other) in enumerate(places)]


def _pad(rows: list[list[int]], value: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows], dtype=torch.int64)
