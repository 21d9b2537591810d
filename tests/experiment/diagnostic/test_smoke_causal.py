"""The study of causal language models in its smallest form, with made-up authors and a tiny Llama."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ruler.data import DATASETS, Prompts, PromptSet
from ruler.experiment.cell import Workplace, run_job
from ruler.experiment.diagnostic.data import Completing, load_data
from ruler.experiment.grid import group_jobs, list_cells
from ruler.experiment.settings import LANGUAGE_METHODS
from ruler.experiment.studies import STUDIES, choose_studies, shrink_studies
from ruler.metrics.peers import PEERS
from ruler.unlearning import METHODS

N_AUTHORS, N_QUESTIONS = 60, 3
WORDS = [f"w{number}" for number in range(40)]


def write_authors() -> Prompts:
    rng = np.random.default_rng(0)
    n = N_AUTHORS * N_QUESTIONS

    def write(n_words: int) -> tuple[str, ...]:
        return tuple(" ".join(words) for words in rng.choice(WORDS, (n, n_words)))

    names = [f"author {number:02d}" for number in range(N_AUTHORS)]
    return Prompts(
        name="tofu",
        prompts=write(5),
        completions=write(6),
        ids=np.array([f"{row:03d}" for row in range(n)]),
        groups=np.repeat(names, N_QUESTIONS),
        paraphrases=write(6),
        perturbations=tuple(zip(write(6), write(6), strict=True)),
        forget_sets={"forget10": tuple(names[-6:]), "forget05": tuple(names[-3:])},
    )


@pytest.fixture
def authors(monkeypatch: pytest.MonkeyPatch) -> Prompts:
    """Made-up authors under TOFU's name."""
    texts = write_authors()
    stand_in = replace(
        DATASETS["tofu"], read=write_authors, n_prompts=len(texts), content_hash=texts.content_hash, stem=""
    )
    assert isinstance(stand_in, PromptSet)
    monkeypatch.setitem(DATASETS._entries, "tofu", stand_in)
    load_data.cache_clear()
    return texts


@pytest.fixture
def causal_model(tmp_path: Path) -> Path:
    """A tiny Llama and its tokenizer, as ``save_pretrained`` leaves them."""
    vocabulary = {word: place for place, word in enumerate(["</s>", "?", "Question", "Answer", ":", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "tiny"
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_authors_are_held_out_before_training_and_forgotten_in_their_sets(authors, causal_model):
    data = load_data("tofu", "full", str(causal_model))
    assert isinstance(data.language, Completing)
    assert data.groups is not None
    held_out, trained = set(data.groups[data.n_train :]), set(data.groups[: data.n_train])
    assert (len(held_out), held_out & trained) == (12, set())
    for fraction, name in ((0.10, "forget10"), (0.05, "forget05")):
        partition = data.cut(fraction, 999, "random")
        assert set(data.groups[partition.forget]) == set(authors.forget_sets[name])
        assert len(partition.forget) + len(partition.retain) == data.n_train
    drawn = data.cut(0.2, 999, "random")
    assert set(data.groups[drawn.forget]) not in [set(names) for names in authors.forget_sets.values()]
    is_asked = data.language.labels != -100
    assert (is_asked.sum(1) == 7).all()  # six words and the end of the text


def test_the_study_runs_every_method_and_measures_layers_and_peers(authors, causal_model, tmp_path):
    (study,) = shrink_studies([STUDIES["tofu"]])
    study = replace(study, datasets=("tofu",), forget_fractions=(0.10,), learning_rates=(5e-5,))
    (job,) = group_jobs(list_cells(study))
    outcomes = list(run_job(job, Workplace(tmp_path, language_model=str(causal_model))))
    assert {outcome.cell.method for outcome in outcomes} == {*LANGUAGE_METHODS, "original", "oracle"}
    for outcome in outcomes:
        assert outcome.scores is not None, outcome.details
        assert str(outcome.scores["model"]).startswith("tiny (")
        if outcome.cell.method == "oracle":
            continue
        layers, peers = json.loads(str(outcome.scores["layers"])), json.loads(str(outcome.scores["peers"]))
        assert len(layers) == 5  # four blocks, and what the head reads
        assert all(0 <= auc <= 1 for auc in layers.values())
        assert peers.keys() == PEERS.keys()
        for name in ("probability", "truth_ratio", "min_k", "extraction_strength"):
            low, high = PEERS[name].range
            assert low <= peers[name] <= high


def test_methods_of_the_study_are_for_language_models():
    assert all(METHODS[name].kind in ("any", "language", "preferences") for name in LANGUAGE_METHODS)


def test_all_is_the_paper_alone():
    assert "tofu" not in {study.name for study in choose_studies("all")}
    assert [study.name for study in choose_studies("tofu")] == ["tofu"]
