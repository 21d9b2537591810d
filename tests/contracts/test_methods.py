"""Every unlearning method keeps the contract, and one from outside the repository is used like ours."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.experiment.settings import StudySettings
from ruler.paper.figures.draw import colour_of
from ruler.paper.results import title_of
from ruler.testing.methods import (
    ARCHITECTURES,
    Records,
    check_architecture,
    check_completions,
    check_method,
    check_sentences,
    check_terms,
    learn_by_heart,
    make_classifier,
    make_example,
)
from ruler.training.steps import cross_entropy
from ruler.unlearning import (
    METHODS,
    BadTeacherSettings,
    Method,
    NegGradPlusSettings,
    Plan,
    ScrubSettings,
    UnlearningSettings,
    unlearn,
)
from ruler.unlearning.classifier.ssd import sum_gradients
from ruler.unlearning.distillation import make_random_teacher

pytestmark = pytest.mark.usefixtures("one_thread")
PLUGIN = '''
from dataclasses import dataclass

from ruler.training.steps import cross_entropy
from ruler.unlearning import Method, Terms, UnlearningSettings


@dataclass(frozen=True)
class HalfSettings(UnlearningSettings):
    """Settings of a method that ascends at half weight."""


HALF_ASCENT = Method(
    title="Half Ascent",
    settings=HalfSettings,
    reads=("forget",),
    make_objective=lambda original, settings: lambda student, forget: -0.5 * cross_entropy(student, forget),
    terms=lambda settings: Terms(forget=(-0.5, 0.0)),
)
'''


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(name)
    if METHODS[name].kind in ("any", "language"):
        check_sentences(name)
    if METHODS[name].kind != "classifier":
        check_completions(name)


def shrinks(before: nn.Module, after: nn.Module, records: Records) -> bool:
    """No weight grows, and some shrink."""
    sizes = [torch.cat([value.detach().abs().flatten() for value in model.parameters()]) for model in (after, before)]
    return bool((sizes[0] <= sizes[1]).all() and (sizes[0] < sizes[1]).any())


def shakes(before: nn.Module, after: nn.Module, records: Records) -> bool:
    """The half of the weights that matter less to the retain records moves more."""
    found = sum_gradients(before, records["retain"], functional.cross_entropy, 2)
    values = dict(after.named_parameters())
    moves = torch.cat([(values[name] - value).abs().flatten() for name, value in before.named_parameters()])
    matters = torch.cat([found[name].flatten() for name, _ in before.named_parameters()])
    is_minor = matters < matters.median()
    return bool(moves[is_minor].mean() > moves[~is_minor].mean())


def raises(before: nn.Module, after: nn.Module, records: Records) -> bool:
    """The loss on the forget records rises beyond that on the retain records."""
    gaps = []
    for model in (before, after):
        losses = [functional.cross_entropy(model.eval()(rows), labels) for rows, labels in records.values()]
        gaps.append((losses[0] - losses[1]).item())
    return gaps[1] > gaps[0]


def learns(before: nn.Module, after: nn.Module, records: Records) -> bool:
    """From fresh weights, the retain records are learned."""
    fresh = make_random_teacher(before, 100)
    losses = [
        functional.cross_entropy(model.eval()(records["retain"][0]), records["retain"][1]) for model in (fresh, after)
    ]
    return bool(losses[1] < 0.9 * losses[0])


EDITS: dict[str, tuple[Any, dict[str, float]]] = {
    "ssd": (shrinks, {"threshold": 1.5}),
    "lfssd": (shrinks, {"threshold": 1.5}),
    "fisher": (shakes, {}),
    "woodfisher": (raises, {}),
    "newton": (raises, {}),
    "short_retraining": (learns, {}),
}
"""Methods that minimise no loss -> what they are to do, and settings under which it shows in a small model."""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if METHODS.is_own(name) and method.edit])
def test_methods_that_minimise_no_loss_do_what_they_are_for(name: str, architecture: str) -> None:
    original, records = make_classifier(architecture), make_example("classifier")[1]
    does, changes = EDITS[name]
    settings = METHODS[name].settings(**changes)
    assert does(original, unlearn(name, original, **records, settings=settings), records)


@pytest.fixture(scope="module", params=["GPT2", "Llama"])
def language_model(request: pytest.FixtureRequest) -> nn.Module:
    """A small model of transformers that knows the records of the contract by heart."""
    transformers = pytest.importorskip("transformers")
    size = {
        "GPT2": {"n_embd": 16, "n_layer": 4, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        "Llama": {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32},
    }[request.param]
    config = getattr(transformers, f"{request.param}Config")(
        vocab_size=40, max_position_embeddings=16, bos_token_id=0, eos_token_id=0, pad_token_id=0, **size
    )
    model = {"GPT2": transformers.GPT2LMHeadModel, "Llama": transformers.LlamaForCausalLM}[request.param]
    torch.manual_seed(0)
    return learn_by_heart(model(config))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.kind != "classifier"])
def test_every_method_unlearns_causal_language_models(name: str, language_model: nn.Module) -> None:
    check_completions(name, language_model)


def test_records_of_another_kind_are_refused() -> None:
    table, completions, preferences = (make_example(kind)[1]["forget"] for kind in ("any", "language", "preferences"))
    model = make_example("language")[0]
    cases: list[tuple[str, Any, Any, str]] = [
        ("npo", table, completions, "forget must be Completions or MaskedSentences for npo; got tuple. Methods that"),
        ("npo", completions, table, "retain must be Completions"),
        ("npo", preferences, completions, "got Preferences. Methods that take these: idk_dpo"),
        ("fine_tuning", None, preferences, "retain must be labelled records, such as"),
        ("idk_dpo", completions, completions, "forget must be Preferences, completions to forget"),
        ("idk_dpo", preferences, preferences, "retain must be Completions or MaskedSentences for idk_dpo"),
    ]
    for name, forget, retain, message in cases:
        with pytest.raises(InputError, match=message):
            unlearn(name, model, forget=forget, retain=retain)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, None) for name, method in METHODS.items() if method.terms is not None),
        ("neggrad_plus", NegGradPlusSettings(retain_weight=0.9, epochs=3)),
        ("scrub", ScrubSettings(retain_weight=0.3, temperature=4.0)),
        ("bad_teacher", BadTeacherSettings(teacher_seed=101, temperature=1.5)),
    ],
)
def test_the_ensemble_runs_the_same_loss(name: str, settings: UnlearningSettings | None) -> None:
    check_terms(name, settings)


def test_a_method_of_another_package_is_used_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "half_ascent.py").write_text(PLUGIN)
    info = tmp_path / "half_ascent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-ascent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ruler.methods]\nhalf_ascent = half_ascent:HALF_ASCENT\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import torch, ruler
from ruler.experiment.settings import StudySettings
from ruler.paper.results import title_of
from ruler.testing.methods import (
    check_completions,
    check_method,
    check_sentences,
    check_terms,
    learn_by_heart,
    make_example,
)
model, records = torch.nn.Linear(2, 2), (torch.eye(2), torch.tensor([0, 1]))
unlearned = ruler.unlearn("half_ascent", model, forget=records, retain=None)
assert not torch.equal(unlearned.weight, model.weight)
for check in (check_method, check_sentences, check_terms):
    check("half_ascent")
print(title_of("half_ascent"), StudySettings("mine", methods=("half_ascent",)).methods)
try:
    ruler.unlearn("half_descent", model, forget=records, retain=None)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "Half Ascent ('half_ascent',)"
    assert "half_ascent" in second.partition("; got")[0]


@pytest.fixture(scope="module")
def noise() -> str:
    """A method that minimises no loss, added by a plain call."""

    def edit(student: nn.Module, records: Any, settings: UnlearningSettings) -> None:
        with torch.no_grad():
            for value in student.parameters():
                value.add_(0.01 * torch.randn_like(value))

    name = "noise_of_the_tests"
    METHODS.register(name, Method(title="Noise", settings=NoiseSettings, reads=("retain",), edit=edit))
    return name


class NoiseSettings(UnlearningSettings):
    pass


def test_a_method_added_by_a_call_keeps_the_contract_and_is_drawn(noise: str) -> None:
    check_method(noise)
    assert (title_of(noise), title_of(noise, is_short=True), colour_of(noise)) == ("Noise", "Noise", "#444444")
    assert not METHODS.is_own(noise)
    with pytest.raises(InputError, match=f"engine must be 'protocol' for {noise}, which has no terms"):
        StudySettings("mine", methods=(noise,), engine="ensemble")
    with pytest.raises(InputError, match="method must have terms for an ensemble"):
        check_terms(noise)


def test_the_contract_finds_what_is_broken(noise: str) -> None:
    def spoil(student: nn.Module, records: Any, settings: UnlearningSettings) -> None:
        print("working")

    METHODS.register("spoilt_of_the_tests", replace(METHODS[noise], edit=spoil))
    with pytest.raises(AssertionError, match="must print nothing without progress; got 'working"):
        check_method("spoilt_of_the_tests")

    def double(student: nn.Module) -> None:
        for value in student.parameters():
            value.mul_(2)

    wrong = replace(
        METHODS["cf_k"], make_plan=lambda student, records, settings: Plan(cross_entropy, after_step=double)
    )
    METHODS.register("wrong_of_the_tests", wrong)
    with pytest.raises(AssertionError, match="wrong_of_the_tests must lower its own loss"):
        check_architecture("wrong_of_the_tests", "MLP")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reads": ()}, r"reads must name 'retain', 'forget' or both, each once; got \(\)"),
        ({"reads": ("forget", "forget")}, "reads must name"),
        ({"reads": ("held_out",)}, "reads must name"),
        ({"make_objective": None}, "exactly one of make_objective, make_plan and edit must be given"),
        ({"settings": ScrubSettings()}, "settings must be a subclass of UnlearningSettings; got ScrubSettings"),
    ],
)
def test_a_method_that_cannot_run_is_refused_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(METHODS["scrub"], **changes)
