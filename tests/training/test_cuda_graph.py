"""Captured steps on a CUDA device against the same steps taken one operation at a time."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from ruler.core.determinism import seeded
from ruler.core.errors import DivergedError
from ruler.models.ft_transformer import FTTransformer
from ruler.models.resnet18 import ResNet18
from ruler.testing.methods import TinyLanguageModel, make_completions
from ruler.training import loop
from ruler.training.batches import map_tensors
from ruler.training.cuda_graph import CapturedStep, GraphCapture
from ruler.training.loop import optimize
from ruler.training.sentences import MaskedSentences, Preferences
from ruler.training.settings import TrainingSettings
from ruler.training.steps import Step, cross_entropy, make_optimizer
from ruler.unlearning import METHODS, unlearn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TOLERANCE = 0.01
"""How far two runs may end apart, as a share of the way that they went. Fused and ordinary optimisers round
differently, and training magnifies that; a wrong batch, rate or state of a single step would part them by more."""


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Products in float32 proper and algorithms that repeat themselves, so that only the capture can differ."""
    conv, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = conv.deterministic, conv.allow_tf32, matmul.allow_tf32
    conv.deterministic, conv.allow_tf32, matmul.allow_tf32 = True, False, False
    yield
    conv.deterministic, conv.allow_tf32, matmul.allow_tf32 = before


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a capture: how often it was replayed."""
    counts: list[int] = []

    class Counted(GraphCapture):
        def __call__(self, step: Any, undo: Any, device: torch.device) -> Callable[[], torch.Tensor]:
            replay = super().__call__(step, undo, device)
            counts.append(0)
            place = len(counts) - 1

            def run() -> torch.Tensor:
                counts[place] += 1
                return replay()

            return run

    monkeypatch.setattr(loop, "GraphCapture", Counted)
    return counts


class Guesser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(60, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 60)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        words = self.words(input_ids) * attention_mask[:, :, None]
        return self.head(self.norm(words + words.mean(dim=1, keepdim=True)))


def make_convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 16, 3),
    )


def make_mlp(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 3))


def make_images(n: int = 150) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, 8, 8, generator=draw), torch.randint(0, 3, (n,), generator=draw)


def make_rows(n: int = 150) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(2)
    return torch.randn(n, 6, generator=draw), torch.randint(0, 3, (n,), generator=draw)


def make_sentences(n: int = 150, seed: int = 3) -> MaskedSentences:
    ids = torch.randint(4, 60, (n, 12), generator=torch.Generator().manual_seed(seed))
    return MaskedSentences(ids, torch.ones_like(ids), mask_id=3, special_ids=(0, 1), vocab_size=60)


def flatten(model: nn.Module) -> torch.Tensor:
    values = [value for value in model.state_dict().values() if value.is_floating_point()]
    return torch.cat([value.detach().double().flatten().cpu() for value in values])


def check_both_ways(start: nn.Module, run: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured run goes where a plain one goes, and counts as many batches."""
    captured = run()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "can_capture", lambda parameters, streams: False)
        plain = run()
    way = (flatten(plain) - flatten(start)).norm()
    assert way > 0
    assert (flatten(captured) - flatten(plain)).norm() < TOLERANCE * way
    for name, value in plain.state_dict().items():
        if not value.is_floating_point():
            assert torch.equal(value, captured.state_dict()[name]), name


def build_seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with seeded(0):
        return build()


def train(build: Callable[[], nn.Module], data: Any, settings: TrainingSettings) -> nn.Module:
    torch.cuda.init()
    with seeded(0):
        model = build().cuda()
        optimize(model, cross_entropy, {"data": data}, settings, seed=0)
    return model


SETTINGS = TrainingSettings(epochs=4, batch_size=32, optimizer="sgd", learning_rate=0.05, momentum=0.9)
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], TrainingSettings]] = {
    "convolutions, sgd": (make_convnet, make_images, SETTINGS),
    "channels last": (lambda: make_convnet().to(memory_format=torch.channels_last), make_images, SETTINGS),
    "augmented": (make_convnet, make_images, replace(SETTINGS, augment="flip_crop")),
    "convolutions, adam": (
        make_convnet,
        make_images,
        replace(SETTINGS, optimizer="adam", learning_rate=1e-3, momentum=0.0),
    ),
    "rows, one cycle": (
        make_mlp,
        make_rows,
        replace(SETTINGS, optimizer="adamw", weight_decay=0.01, learning_rate=1e-2, schedule="one_cycle"),
    ),
    "rows, cosine": (make_mlp, make_rows, replace(SETTINGS, schedule="cosine", weight_decay=5e-4)),
    "rows with dropout": (lambda: make_mlp(0.5), make_rows, SETTINGS),
    "some records": (make_mlp, make_rows, replace(SETTINGS, records_per_epoch=70)),
    "masked language": (Guesser, make_sentences, replace(SETTINGS, optimizer="adamw", learning_rate=1e-3)),
}


# first of all: a capture that fails, as some do in later tests, may keep its memory
def test_graphs_of_one_training_share_their_memory_and_give_it_back():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 3)).cuda()
    optimizer = make_optimizer(list(model.parameters()), TrainingSettings(), is_capturable=True)
    step = CapturedStep(Step(model, cross_entropy, optimizer, "float32"), GraphCapture())
    reserved = [torch.cuda.memory_reserved()]
    for n_rows in (8192, 8000, 7800):
        rows = torch.randn(n_rows, 64, device="cuda"), torch.zeros(n_rows, dtype=torch.int64, device="cuda")
        for _ in range(4):  # rare shapes are taken as they are
            step((rows,))
        reserved.append(torch.cuda.memory_reserved())
    first, *more = [after - was for was, after in pairwise(reserved)]
    assert first > 4 * 8192 * 4096 * 4
    assert more[-1] < first / 8
    step.close()
    del step, optimizer, model
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < first / 4


@pytest.mark.parametrize("case", CASES)
def test_a_captured_run_equals_the_plain_one(case: str, monkeypatch: pytest.MonkeyPatch, replays: list[int]) -> None:
    build, make_data, settings = CASES[case]
    check_both_ways(build_seeded(build), lambda: train(build, make_data(), settings), monkeypatch)
    n_steps = -(-(settings.records_per_epoch or 150) // 32) * settings.epochs
    assert len(replays) == 2  # the ragged last batch is captured too, from its third time on
    assert sum(replays) == n_steps - 2


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((name, kind) for name, method in METHODS.items() if method.kind == "any" for kind in ("images", "sentences")),
        *((name, "images") for name, method in METHODS.items() if method.kind == "classifier" and not method.edit),
        *((name, "completions") for name, method in METHODS.items() if method.kind != "classifier"),
    ],
)
def test_a_captured_method_equals_the_plain_one(
    method: str, kind: str, monkeypatch: pytest.MonkeyPatch, replays: list[int]
) -> None:
    if kind == "images":
        images, labels = make_images()
        forget: Any = (images[:40], labels[:40])
        retain: Any = (images[40:], labels[40:])
        model = train(make_convnet, (images, labels), SETTINGS)
    elif kind == "sentences":
        forget, retain = make_sentences(40, 4), make_sentences(110, 5)
        model = train(Guesser, retain, SETTINGS)
    else:
        forget, retain = make_completions(40, 4), make_completions(110, 5)
        if METHODS[method].kind == "preferences":
            forget = Preferences(forget, make_completions(40, 6, prompts=forget))
        model = train(TinyLanguageModel, retain, SETTINGS)
    settings = METHODS[method].settings(epochs=3, batch_size=32)

    def run() -> nn.Module:
        return unlearn(method, model, forget=forget, retain=retain, settings=settings)

    replays.clear()
    check_both_ways(model, run, monkeypatch)
    assert sum(replays) > 0


def test_bert_is_captured(monkeypatch: pytest.MonkeyPatch, replays: list[int]) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    settings = replace(SETTINGS, optimizer="adamw", learning_rate=1e-3)

    def build() -> nn.Module:
        model: nn.Module = transformers.BertForMaskedLM(config)
        return model

    check_both_ways(build_seeded(build), lambda: train(build, make_sentences(), settings), monkeypatch)
    assert sum(replays) > 0


@pytest.mark.parametrize("build", [lambda: ResNet18(3), lambda: FTTransformer(6, 3)])
def test_bfloat16_is_captured_and_learns(build: Callable[[], nn.Module], replays: list[int]) -> None:
    model = build().cuda().to(memory_format=torch.channels_last)
    data = make_images() if isinstance(model, ResNet18) else make_rows()
    settings = TrainingSettings(epochs=15, batch_size=32, precision="bfloat16", optimizer="adamw")
    losses = optimize(model, cross_entropy, {"data": data}, settings)
    assert losses[-1] < 0.9 * losses[0]
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    assert sum(replays) > 0


def test_a_model_that_waits_for_its_device_is_trained_all_the_same(
    monkeypatch: pytest.MonkeyPatch, replays: list[int]
) -> None:
    class Waiting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_mlp(0.5)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.net(rows) * (1.0 if rows.sum().item() > -1e9 else 2.0)

    check_both_ways(build_seeded(Waiting), lambda: train(Waiting, make_rows(), SETTINGS), monkeypatch)
    assert replays == []
    train(lambda: make_mlp(0.5), make_rows(), SETTINGS)  # and the next one is captured again
    assert sum(replays) > 0


def test_a_diverging_run_goes_back_to_its_last_good_epoch(replays: list[int]) -> None:
    rows, labels = make_rows()
    model = make_mlp().cuda()
    starts = [flatten(model)]

    def poison(epoch: int, loss: float) -> None:
        starts.append(flatten(model))
        if epoch == 2:
            with torch.no_grad():
                model[0].weight[0, 0] = float("inf")

    with pytest.raises(DivergedError, match="loss must stay finite and within 10000; got nan in epoch 3") as caught:
        optimize(model, cross_entropy, {"data": (rows, labels)}, replace(SETTINGS, epochs=9), on_epoch=poison)
    assert torch.equal(flatten(model), starts[1])  # the start of epoch 2: that of epoch 3 gave the bad loss
    assert caught.value.last_good_state is not None
    torch.testing.assert_close(caught.value.last_good_state, dict(model.state_dict()), atol=0, rtol=0)
    assert sum(replays) > 0


def test_a_captured_run_repeats_itself() -> None:
    first, again = (flatten(train(lambda: make_mlp(0.5), make_rows(), SETTINGS)) for _ in "ab")
    assert torch.equal(first, again)


def test_how_much_faster_a_replay_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints times; asserts nothing about them."""
    torch.manual_seed(0)
    images = torch.randn(128, 3, 32, 32, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
    rows = torch.randn(256, 54, device="cuda"), torch.randint(0, 7, (256,), device="cuda")
    for name, model, batch in (
        ("ResNet-18", ResNet18(10).to("cuda", memory_format=torch.channels_last), images),
        ("FT-Transformer", FTTransformer(54, 7).cuda(), rows),
        ("MLP", nn.Sequential(nn.Linear(54, 128), nn.ReLU(), nn.Linear(128, 7)).cuda(), rows),
    ):
        times = []
        for is_captured in (False, True):
            optimizer = make_optimizer(list(model.parameters()), TrainingSettings(), is_capturable=True)
            step: Any = Step(model, cross_entropy, optimizer, "bfloat16")
            step = CapturedStep(step, GraphCapture()) if is_captured else step
            held = map_tensors(lambda tensor: tensor.contiguous(), batch)
            for n_steps in (10, 100):
                torch.cuda.synchronize()
                start_s = time.perf_counter()
                for _ in range(n_steps):
                    loss = step((held,))
                torch.cuda.synchronize()
                elapsed_ms = (time.perf_counter() - start_s) / n_steps * 1e3
            assert loss.isfinite()
            times.append(elapsed_ms)
        with capsys.disabled():
            print(f"\n{name}: {times[0]:.3f} ms a step, {times[1]:.3f} ms replayed")
