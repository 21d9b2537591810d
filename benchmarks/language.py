"""How fast is a causal language model fine-tuned and read, beside a plain loop of transformers in the same run?

`python -m benchmarks language [--device cuda] [--json FILE]`. The model has the shape of SmolLM2-135M and random
weights, which take the same time. Fine-tuning: 565 steps of 32 records of 128 tokens, AdamW, bfloat16. Reading: 4,000
records of 20 to 140 tokens, the mean state of the places that predict the second half, and its loss.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ruler.core.text import markdown_table
from ruler.embeddings.language.tokens import read_tokens
from ruler.training.loop import optimize
from ruler.training.sentences import NOT_ASKED, Completions
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy

N_STEPS, BATCH, N_TOKENS = 565, 32, 128
N_PLAIN_STEPS = 60  # of the plain loop; its time per step is what is compared
N_READ, SHORTEST, LONGEST = 4000, 20, 140
RATE = 1e-4


def build_model(device: str, *, is_small: bool = False) -> nn.Module:
    """A model in the shape of SmolLM2-135M; small ones are for trying this file."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = (64, 128, 2, 2, 1, 500) if is_small else (576, 1536, 30, 9, 3, 49152)
    width, inner, layers, heads, groups, words = shape
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        tie_word_embeddings=True,
        use_cache=False,
    )
    build: Any = LlamaForCausalLM
    model: nn.Module = build(config).to(device)
    return model


def draw_records(n: int, n_words: int, device: str, *, is_ragged: bool) -> dict[str, torch.Tensor]:
    """Random tokens; the second half of each record is its completion."""
    generator = torch.Generator().manual_seed(1)
    width = LONGEST if is_ragged else N_TOKENS
    ends = torch.randint(SHORTEST, LONGEST + 1, (n, 1), generator=generator) if is_ragged else torch.full((n, 1), width)
    tokens, places = torch.randint(3, n_words, (n, width), generator=generator), torch.arange(width)
    labels = tokens.where((places >= ends // 2) & (places < ends), NOT_ASKED)
    mask = (places < ends).long()
    return {"input_ids": tokens.to(device), "labels": labels.to(device), "attention_mask": mask.to(device)}


def take_time(work: Callable[[], Any], device: str) -> float:
    """Seconds of one call, the device's work included."""
    if device == "cuda":
        torch.cuda.synchronize()
    began_s = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began_s


def train_plainly(model: nn.Module, records: dict[str, torch.Tensor], device: str, n_steps: int) -> None:
    """The loop that a user would write: the model's own loss under autocast, step by step."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    for step in range(n_steps):
        rows = slice(step * BATCH % len(records["labels"]), step * BATCH % len(records["labels"]) + BATCH)
        with torch.autocast(device, torch.bfloat16):
            loss = model(**{name: value[rows] for name, value in records.items()}).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


@torch.inference_mode()
def read_plainly(model: Any, records: dict[str, torch.Tensor], batch_size: int) -> None:
    """The loop that a user would write: batches in order, all logits, all states."""
    model.eval()
    for start in range(0, len(records["labels"]), batch_size):
        part = {name: value[start : start + batch_size] for name, value in records.items()}
        output = model(**part, output_hidden_states=True)
        asked = (part["labels"] != NOT_ASKED).float()
        ((output.hidden_states[-1] * asked[:, :, None]).sum(1) / asked.sum(1)[:, None]).cpu()
        logits, labels = output.logits[:, :-1].float().flatten(0, 1), part["labels"][:, 1:].flatten()
        nn.functional.cross_entropy(logits, labels, ignore_index=NOT_ASKED, reduction="none").cpu()


def main() -> None:
    """Measure, print a table, and keep the numbers."""
    parser = argparse.ArgumentParser(prog="benchmarks language")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a small model and few records")
    options = parser.parse_args()
    device, n_steps, n_read = options.device, 4 if options.quick else N_STEPS, 64 if options.quick else N_READ
    model = build_model(device, is_small=options.quick)
    n_words = int(model.config.vocab_size)  # type: ignore[union-attr, arg-type]
    records = draw_records(n_steps * BATCH // 5, n_words, device, is_ragged=False)
    n_plain = min(n_steps, N_PLAIN_STEPS)
    settings = TrainingSettings(
        epochs=5, batch_size=BATCH, optimizer="adamw", learning_rate=RATE, weight_decay=0.01, precision="bfloat16"
    )
    source = Completions(records["input_ids"], records["labels"])
    train_plainly(copy.deepcopy(model), records, device, 3)
    plain_s = take_time(lambda: train_plainly(copy.deepcopy(model), records, device, n_plain), device)
    plain_s *= n_steps / n_plain
    short = replace(settings, epochs=1, records_per_epoch=min(4 * BATCH, len(source)))  # kernels are compiled once
    optimize(copy.deepcopy(model), cross_entropy, {"data": source}, short)
    ours_s = take_time(lambda: optimize(copy.deepcopy(model), cross_entropy, {"data": source}, settings), device)
    lines = [("fine-tuning, 565 steps of 32 x 128 tokens", plain_s, ours_s)]
    ragged = draw_records(n_read, n_words, device, is_ragged=True)
    for precision in ("float32", "bfloat16"):

        def read_ours(precision: Any = precision) -> None:
            read_tokens(model, ragged, hidden="mean", precision=precision, batch_tokens=32768)

        def read_theirs(precision: str = precision) -> None:
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
                read_plainly(model, ragged, 64)

        for work in (read_ours, read_theirs):
            work()
        theirs_s, ours_s = (take_time(work, device) for work in (read_theirs, read_ours))
        lines.append((f"reading 4,000 records, {precision}", theirs_s, ours_s))
    head = ("work", "plain loop, s", "RULER, s", "ratio")
    rows = [(name, f"{plain:.1f}", f"{ours:.1f}", f"{plain / ours:.1f}x") for name, plain, ours in lines]
    print("\n".join(markdown_table(head, rows)))
    if options.json:
        names = ("work", "plain_s", "ours_s")
        options.json.write_text(json.dumps([dict(zip(names, line, strict=True)) for line in lines]))
