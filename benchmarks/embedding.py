"""How fast are images and texts embedded, beside a plain loop of torch in the same run?

`python -m benchmarks embedding [--device cuda] [--json FILE]`. 50,000 images of 32 x 32 go through a ResNet-18, and
20,000 texts of 20 to 256 tokens through an encoder of BERT's base shape (110 million weights), both with random
weights, which take the same time. The plain loops take batches in the order of the records, pad each batch of texts to
its longest, and copy what a hook reads to the host batch by batch. torch computes products in float32 and rounds the
inputs of convolutions to ten bits (TF32) unless it is told otherwise; RULER does not round them. So images are also
timed against the plain loop in full precision, and both under the caller's autocast to bfloat16.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.language import take_time
from benchmarks.measure import describe_machine, save_numbers
from ruler.core.determinism import full_precision
from ruler.core.text import markdown_table
from ruler.embeddings import embed
from ruler.models.resnet18 import ResNet18

N_IMAGES, N_TEXTS = 50_000, 20_000
SHORTEST, LONGEST = 20, 256
BATCH = 256
_QUICK = 2000  # times fewer records


def build_encoder(*, is_small: bool) -> nn.Module:
    """BERT's base shape with a head of two classes; small ones are for trying this file."""
    from transformers import BertConfig, BertForSequenceClassification

    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    small["num_attention_heads"] = 2
    torch.manual_seed(0)
    build: Any = BertForSequenceClassification
    config: Any = BertConfig
    model: nn.Module = build(config(**(small if is_small else {}))).eval()
    return model


def draw_texts(n: int) -> list[Tensor]:
    """Random tokens, lengths even from the shortest to the longest."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (n,), generator=generator).tolist()
    return [torch.randint(1000, 30_000, (length,), generator=generator) for length in lengths]


@torch.no_grad()
def read_plainly(model: nn.Module, layer: nn.Module, batches: Iterator[Mapping[str, Tensor]], device: str) -> Tensor:
    """The loop that a user would write: a hook on the layer before the head, and its output to the host."""
    rows: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: rows.append(given[0].cpu()))
    for batch in batches:
        model(**{name: value.to(device) for name, value in batch.items()})
    handle.remove()
    return torch.cat(rows)


def batch_images(images: Tensor) -> Iterator[dict[str, Tensor]]:
    """Images in their order."""
    return ({"x": part} for part in torch.split(images, BATCH))


def batch_texts(texts: list[Tensor]) -> Iterator[dict[str, Tensor]]:
    """Texts in their order, each batch padded to its longest."""
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        tokens = nn.utils.rnn.pad_sequence(part, batch_first=True)
        ones = [torch.ones_like(text) for text in part]
        yield {"input_ids": tokens, "attention_mask": nn.utils.rnn.pad_sequence(ones, batch_first=True)}


def compare(
    name: str, ours: Callable[[], Any], rivals: Mapping[str, Callable[[], Tensor]], device: str
) -> Iterator[dict[str, Any]]:
    """Seconds and memory of each, and how far rows of a rival are from ours, in units of the largest number."""
    found, ours_s, ours_mb = _measure(ours, device)
    rows = torch.from_numpy(found.values)
    for rival, work in rivals.items():
        others, elapsed_s, rival_mb = _measure(work, device)
        apart = float((others - rows).abs().max() / rows.abs().max())
        times = {"rival_s": elapsed_s, "ruler_s": ours_s, "rival_mb": rival_mb, "ruler_mb": ours_mb}
        yield {"work": name, "rival": rival, **times, "apart": apart}


def _measure(work: Callable[[], Any], device: str) -> tuple[Any, float, float]:
    """What a call gives, its seconds, and how much of a GPU's memory it takes beyond what was there, in MB."""
    kept: list[Any] = []
    has_gpu = device == "cuda"
    before = torch.cuda.memory_allocated() if has_gpu else 0
    if has_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    elapsed_s = take_time(lambda: kept.append(work()), device)
    return kept[0], elapsed_s, (torch.cuda.max_memory_allocated() - before) / 1e6 if has_gpu else 0.0


def time_images(n: int, device: str) -> Iterator[dict[str, Any]]:
    """Images of one tensor in memory."""
    torch.manual_seed(0)
    model = ResNet18().eval().to(device)
    images = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    def read_plain(part: Tensor = images) -> Tensor:
        return read_plainly(model, model.fc, batch_images(part), device)

    def read_fully(part: Tensor = images) -> Tensor:
        with full_precision(torch):
            return read_plain(part)

    def rounded(work: Callable[[], Any]) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            return work()

    rivals = {"plain loop, full precision": read_fully, "plain loop, TF32": read_plain}
    in_bfloat16 = {"plain loop, bfloat16": lambda: rounded(read_plain).float()}
    name = f"{n:,} images, ResNet-18"
    for work in (read_plain, read_fully, lambda part: embed(model, part)):
        work(images[:BATCH])  # kernels are loaded
        rounded(partial(work, images[:BATCH]))
    yield from compare(name, lambda: embed(model, images), rivals, device)
    yield from compare(f"{name}, bfloat16", lambda: rounded(lambda: embed(model, images)), in_bfloat16, device)


def time_texts(n: int, device: str, *, is_small: bool) -> Iterator[dict[str, Any]]:
    """Texts as a list of records, as a tokenizer gives them without padding."""
    model: Any = build_encoder(is_small=is_small).to(device)
    texts = draw_texts(n)
    records = [{"input_ids": text} for text in texts]

    def read_plain(some: list[Tensor] = texts) -> Tensor:
        return read_plainly(model, model.classifier, batch_texts(some), device)

    read_plain(texts[:BATCH])
    embed(model, records[:BATCH])
    name = f"{n:,} texts, encoder of 110 million weights"
    yield from compare(name, lambda: embed(model, records), {"plain loop": read_plain}, device)


def main() -> None:
    """Measure, print a table, and keep the numbers."""
    parser = argparse.ArgumentParser(prog="benchmarks embedding")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few records and a small encoder")
    options = parser.parse_args()
    share = _QUICK if options.quick else 1
    found = [*time_images(N_IMAGES // share, options.device)]
    found += time_texts(N_TEXTS // share, options.device, is_small=options.quick)
    head = ("work", "rival", "rival, s", "RULER, s", "ratio", "apart")
    rows = []
    for one in found:
        ratio = one["rival_s"] / one["ruler_s"]
        times = f"{one['rival_s']:.2f}", f"{one['ruler_s']:.2f}", f"{ratio:.2f}x"
        rows.append((one["work"], one["rival"], *times, f"{one['apart']:.1e}"))
    print("\n".join(markdown_table(head, rows)))
    if options.json:
        known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
        machine = describe_machine(has_gpu=options.device == "cuda")
        save_numbers(options.json, known | {"machine": machine, "embedding": found})
