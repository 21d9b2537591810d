"""The trainer of language models, against its definition on a tiny BERT."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ruler.experiment.diagnostic import language
from ruler.experiment.diagnostic.data import DiagnosticData, Language, Vocabulary
from ruler.experiment.diagnostic.language import LanguageTrainer, describe_head
from ruler.experiment.grid import Cell
from ruler.training.checkpoints import CheckpointStore
from ruler.training.settings import TrainingSettings

CLS, SEP, PAD, MASK, SIZE = 2, 3, 0, 4, 50
CELL = Cell("clinical", "mtsamples", "original", 0.05, 0, architecture="bert_mlm", size="smoke", batch_size=4)


@pytest.fixture
def trainer(tmp_path: Path) -> LanguageTrainer:
    return make_trainer(tmp_path, "cpu")


def make_tokens() -> np.ndarray:
    tokens = np.random.default_rng(0).integers(5, SIZE, size=(40, 12))
    tokens[:, 0], tokens[:, 9], tokens[:, 10:] = CLS, SEP, PAD
    tokens[30:, 5], tokens[30:, 6:] = SEP, PAD  # shorter ones
    return tokens


def make_trainer(folder: Path, device: str) -> LanguageTrainer:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=SIZE, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder / "bert")
    tokens = make_tokens()
    vocabulary = Vocabulary(mask_id=MASK, pad_id=PAD, special_ids=(PAD, CLS, SEP, MASK), size=SIZE)
    language = Language(folder / "bert", "tiny", vocabulary, tokens[:20])
    data = DiagnosticData(tokens, None, None, 30, SIZE, language=language)
    return LanguageTrainer(data, device, CheckpointStore(folder / "models"))


def test_a_outputs_is_what_the_plain_model_says(trainer: LanguageTrainer) -> None:
    model = trainer.train(CELL, np.arange(30), seed=0)
    outputs = trainer.read(model)
    tokens = torch.from_numpy(make_tokens())
    _, place = DiagnosticData(make_tokens(), None, None, 30, SIZE).distinct
    is_asked = trainer.is_asked[torch.from_numpy(place)]
    attention = (tokens != PAD).long()
    with torch.inference_mode():
        rows = model.bert(input_ids=tokens, attention_mask=attention).last_hidden_state[:, 0]
        logits = model(input_ids=tokens.masked_fill(is_asked, MASK), attention_mask=attention).logits
    torch.testing.assert_close(outputs.rows, rows)
    for i in range(len(tokens)):
        asked, answers = tokens[i][is_asked[i]], logits[i][is_asked[i]]
        assert outputs.losses[i] == pytest.approx(torch.nn.functional.cross_entropy(answers, asked).item(), abs=1e-5)
        assert outputs.hits[i] == pytest.approx((answers.argmax(1) == asked).double().mean().item())


def test_training_and_unlearning_are_made_to_repeat(trainer: LanguageTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextmanager
    def note(device: str) -> Iterator[None]:
        asked.append(device)
        yield

    monkeypatch.setattr(language, "repeat_exactly", note)
    cell = replace(CELL, method="fine_tuning", learning_rate=5e-5)
    trainer.unlearn(cell, trainer.train(cell, np.arange(30), seed=0), np.arange(6), np.arange(6, 30))
    assert asked == ["cpu", "cpu"]


def test_a_head_that_was_not_trained_repeatably_is_not_taken(tmp_path: Path) -> None:
    model, settings = torch.nn.Linear(2, 2), TrainingSettings()
    language = Language(tmp_path, "tiny", Vocabulary(SIZE, PAD, MASK, ()), np.zeros((2, 4), dtype=np.int64))
    recipes = [describe_head(model, language, settings, device) for device in ("cpu", "cuda")]
    assert [", repeatably" in recipe.trainer for recipe in recipes] == [False, True]


def test_a_missing_head_is_trained_in_the_precision_of_the_study(trainer: LanguageTrainer) -> None:
    single, half = (trainer.load_base(replace(CELL, precision=precision)) for precision in ("float32", "bfloat16"))
    again = trainer.load_base(replace(CELL, precision="float32"))
    assert again is single
    weights, others = (model.cls.predictions.transform.dense.weight for model in (single, half))
    assert not torch.equal(weights, others)
    torch.testing.assert_close(weights, others, atol=1e-3, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_gives_the_same_bits_every_time(tmp_path: Path, precision: str) -> None:
    cell = replace(CELL, method="neggrad_plus", learning_rate=5e-5, precision=precision)

    def measure(folder: Path) -> torch.Tensor:
        torch.manual_seed(0)  # of the weights in the folder
        trainer = make_trainer(folder, "cuda")
        original = trainer.train(cell, np.arange(30), seed=0)
        return trainer.read(trainer.unlearn(cell, original, np.arange(6), np.arange(6, 30))).rows

    assert torch.equal(measure(tmp_path / "a"), measure(tmp_path / "b"))
