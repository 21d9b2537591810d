"""Methods for classifiers against their definitions, spelled out record by record or step by step."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ruler.core.errors import InputError
from ruler.models.ft_transformer import FTTransformer
from ruler.models.small_cnn import SmallCNN
from ruler.unlearning import (
    METHODS,
    BoundaryShrinkSettings,
    CfKSettings,
    DeleteSettings,
    EuKSettings,
    FisherSettings,
    JitSettings,
    L1SparseSettings,
    LfssdSettings,
    NoisySgdSettings,
    RandomLabelsSettings,
    RetrainSettings,
    SalunSettings,
    SsdSettings,
    unlearn,
)
from ruler.unlearning.classifier.records import draw_wrong_labels, gather_pair, list_last_layers
from ruler.unlearning.classifier.ssd import sum_gradients

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(60, 4, generator=DRAW)
LABELS = torch.randint(0, 3, (60,), generator=DRAW)
FORGET, RETAIN = (ROWS[:5], LABELS[:5]), (ROWS[5:], LABELS[5:])
Loss = Callable[[nn.Module, int], torch.Tensor]


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def entropy(model: nn.Module, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return functional.cross_entropy(model(pair[0]), pair[1])


def descend(model: nn.Module, make_loss: Loss, optimizer: Any, epochs: int, **options: float) -> nn.Module:
    student = copy.deepcopy(model).train()
    mover = optimizer(student.parameters(), **options)
    for epoch in range(epochs):
        mover.zero_grad()
        make_loss(student, epoch).backward()  # type: ignore[no-untyped-call]
        mover.step()
    return student


def assert_alike(found: nn.Module, expected: nn.Module) -> None:
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, atol=1e-6, rtol=1e-5, msg=name)


def run(method: str, model: nn.Module, settings: Any) -> nn.Module:
    return unlearn(method, model, forget=FORGET, retain=RETAIN, settings=settings)


def test_random_labels_trains_on_labels_that_are_wrong(model: nn.Module) -> None:
    wrong = draw_wrong_labels(FORGET, model, seed=100)
    both = torch.cat([ROWS[5:], ROWS[:5]]), torch.cat([LABELS[5:], wrong[1]])
    expected = descend(model, lambda m, _: entropy(m, both), torch.optim.Adam, 3, lr=1e-4)
    assert_alike(run("random_labels", model, RandomLabelsSettings(batch_size=None)), expected)


def test_random_labels_fits_the_majority_where_wrong_labels_contradict_it() -> None:
    """Of 60 alike records 15 get the other of two labels: the best answer is 1/4, not 1/2."""
    rows, labels = torch.ones(60, 1), torch.zeros(60, dtype=torch.long)
    settings = RandomLabelsSettings(epochs=400, learning_rate=0.1, batch_size=20)
    records = {"forget": (rows[:15], labels[:15]), "retain": (rows[15:], labels[15:])}
    found = unlearn("random_labels", nn.Linear(1, 2), **records, settings=settings)  # type: ignore[arg-type]
    assert found(rows[:1]).softmax(1)[0, 1].item() == pytest.approx(0.25, abs=0.05)


def test_wrong_labels_are_drawn_evenly_from_the_others() -> None:
    many = torch.zeros(3000, 4), torch.full((3000,), 2)
    drawn = draw_wrong_labels(many, nn.Linear(4, 3), seed=1)[1]
    counts = torch.bincount(drawn, minlength=3).tolist()
    assert counts[2] == 0
    assert abs(counts[0] - counts[1]) < 200
    assert not torch.equal(drawn, draw_wrong_labels(many, nn.Linear(4, 3), seed=2)[1])


def test_salun_moves_the_weights_of_the_largest_gradients_alone_in_spite_of_decay(
    model: nn.Module,
) -> None:
    loss = entropy(model, FORGET)
    gradients = torch.cat([grad.abs().flatten() for grad in torch.autograd.grad(loss, list(model.parameters()))])
    unlearned = run("salun", model, SalunSettings(share=0.25, weight_decay=0.1, batch_size=16))
    before, after = (torch.cat([value.detach().flatten() for value in m.parameters()]) for m in (model, unlearned))
    n_moving = round(0.25 * len(before))
    largest = torch.zeros_like(before, dtype=torch.bool)
    largest[gradients.topk(n_moving).indices] = True
    assert torch.equal(after[~largest], before[~largest])
    assert (after[largest] != before[largest]).sum() > 0.9 * n_moving


def test_the_penalty_of_l1_sparse_fades_out(model: nn.Module) -> None:
    def penalised(student: nn.Module, epoch: int) -> torch.Tensor:
        size = torch.stack([value.abs().sum() for value in student.parameters()]).sum()
        return entropy(student, RETAIN) + 0.01 * (1 - epoch / 4) * size

    expected = descend(model, penalised, torch.optim.SGD, 4, lr=0.01, momentum=0.9)
    settings = L1SparseSettings(epochs=4, penalty=0.01, batch_size=None)
    assert_alike(run("l1_sparse", model, settings), expected)


def measure_importance(model: nn.Module, pair: Any, *, is_free: bool) -> dict[str, torch.Tensor]:
    """Mean over records of the squared gradient of the loss, or of the gradient's size of the squared output."""
    model.eval()
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for row, label in zip(*pair, strict=True):
        output = model(row[None])
        loss = output.square().sum() if is_free else functional.cross_entropy(output, label[None])
        for (name, _), grad in zip(total.items(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            total[name] += (grad.abs() if is_free else grad**2) / len(pair[1])
    return total


@pytest.mark.parametrize(
    ("method", "settings"),
    [("ssd", SsdSettings(threshold=3.0, strength=0.7)), ("lfssd", LfssdSettings(threshold=2.0, strength=1.5))],
)
def test_ssd_dampens_what_matters_more_to_forget_than_to_all_records(
    model: nn.Module, method: str, settings: Any
) -> None:
    is_free = method == "lfssd"
    forget = measure_importance(model, FORGET, is_free=is_free)
    overall = measure_importance(model, (ROWS, LABELS), is_free=is_free)
    unlearned = dict(run(method, model, settings).named_parameters())
    n_dampened = 0
    for name, value in model.named_parameters():
        is_chosen = forget[name] > settings.threshold * overall[name]
        factor = (settings.strength * overall[name] / forget[name]).clamp(max=1)
        torch.testing.assert_close(unlearned[name], torch.where(is_chosen, value * factor, value))
        n_dampened += int(is_chosen.sum())
    assert n_dampened > 0


@pytest.mark.parametrize("make", [lambda: SmallCNN(n_classes=3), lambda: FTTransformer(4, 3)])
def test_gradients_of_single_records_are_those_of_a_loop_for_any_architecture(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make().train()
    rows = torch.randn(4, 3, 32, 32) if isinstance(model, SmallCNN) else ROWS[:4]
    found = sum_gradients(model, (rows, LABELS[:4]), functional.cross_entropy, 2)
    assert all(module.training for module in model.modules())
    for name, value in measure_importance(model, (rows, LABELS[:4]), is_free=False).items():
        torch.testing.assert_close(found[name], 4 * value, rtol=1e-3, atol=1e-7, msg=name)


def test_ssd_says_when_it_could_not_dampen_anything(model: nn.Module) -> None:
    with pytest.raises(InputError, match="threshold must be below 12, the number of all records per forget record"):
        run("ssd", model, SsdSettings(threshold=12.0))


def test_delete_follows_the_original_without_the_true_class(model: nn.Module) -> None:
    target = model(FORGET[0]).detach().softmax(1)
    target[torch.arange(5), FORGET[1]] = 0
    target /= target.sum(1, keepdim=True)
    make_objective = METHODS["delete"].make_objective
    assert make_objective is not None
    student = copy.deepcopy(model)
    nn.init.normal_(student[5].weight)
    log_q = student(FORGET[0]).log_softmax(1)
    expected = (torch.xlogy(target, target) - target * log_q).sum(1).mean()
    torch.testing.assert_close(make_objective(model, DeleteSettings())(student, FORGET), expected)
    unlearned = run("delete", model, DeleteSettings(learning_rate=0.1, epochs=300))
    torch.testing.assert_close(unlearned(FORGET[0]).softmax(1), target, atol=0.05, rtol=0)


@pytest.mark.parametrize(("k", "moving"), [(1, {"5"}), (2, {"3", "5"}), (3, {"0", "2", "3", "5"})])
def test_the_last_layers_alone_are_trained_and_all_can_be_again(model: nn.Module, k: int, moving: set[str]) -> None:
    for method, settings in (("cf_k", CfKSettings(n_layers=k)), ("eu_k", EuKSettings(n_layers=k))):
        unlearned = run(method, model, settings)
        before = dict(model.named_parameters())
        moved = {name for name, value in unlearned.named_parameters() if not torch.equal(value, before[name])}
        assert {name.partition(".")[0] for name in moved} == moving
        assert all(value.requires_grad for value in unlearned.parameters())
    assert list_last_layers(model, k) == sorted(moving)


def test_eu_k_knows_nothing_of_the_layers_that_it_draws_anew(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    nn.init.normal_(other[5].weight, std=3.0)
    nn.init.normal_(other[5].bias, std=3.0)
    assert_alike(run("eu_k", other, EuKSettings()), run("eu_k", model, EuKSettings()))
    tuned, again = (run("cf_k", given, CfKSettings(epochs=1)) for given in (other, model))
    assert not torch.equal(tuned[5].weight, again[5].weight)  # type: ignore[index]


def test_layers_that_are_not_there_or_cannot_be_drawn_are_refused(model: nn.Module) -> None:
    with pytest.raises(InputError, match="n_layers must be at most the model's 3 layers with a matrix; got 4"):
        run("cf_k", model, CfKSettings(n_layers=4))

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 4))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows @ self.weight.T

    with pytest.raises(InputError, match="the last 1 layers must have reset_parameters"):
        run("eu_k", Bare(), EuKSettings())


def test_jit_measures_how_steep_the_output_is(model: nn.Module) -> None:
    linear = nn.Linear(4, 3)
    make_objective = METHODS["jit"].make_objective
    assert make_objective is not None
    torch.manual_seed(5)
    found = make_objective(linear, JitSettings(n_draws=3, noise=0.2))(linear, FORGET)
    torch.manual_seed(5)
    noise = 0.2 * torch.randn(3, 5, 4)
    slopes = [(linear.weight @ e).norm() / e.norm() for e in noise.reshape(15, 4)]
    torch.testing.assert_close(found, torch.stack(slopes).mean())
    unlearned = run("jit", model, JitSettings(epochs=50, learning_rate=0.1))
    drawn = torch.randn(200, 5, 4, generator=torch.Generator().manual_seed(1)) * 0.1

    def steepness(given: nn.Module) -> float:
        return (given(FORGET[0] + drawn) - given(FORGET[0])).norm(dim=-1).mean().item()

    assert steepness(unlearned) < 0.5 * steepness(model)


def test_boundary_shrink_trains_on_the_class_of_the_neighbour(model: nn.Module) -> None:
    nearest = []
    for row, label in zip(*FORGET, strict=True):
        start = row.clone().requires_grad_()
        functional.cross_entropy(model(start[None]), label[None]).backward()  # type: ignore[no-untyped-call]
        assert start.grad is not None
        scores = model((row + 0.3 * start.grad.sign())[None])[0].tolist()
        nearest.append(max(range(3), key=scores.__getitem__))
    model.zero_grad()
    relabelled = FORGET[0], torch.tensor(nearest)
    expected = descend(model, lambda m, _: entropy(m, relabelled), torch.optim.SGD, 10, lr=1e-3, momentum=0.9)
    assert_alike(run("boundary_shrink", model, BoundaryShrinkSettings(bound=0.3, batch_size=None)), expected)


def test_boundary_shrink_crosses_the_boundary_only_where_it_is_within_the_bound() -> None:
    """The class is the sign of the input: records at 0.2 and -0.2 change it at a bound of 0.3, those at 1 do not."""
    line, rows = nn.Linear(1, 2), torch.tensor([[0.2], [-0.2], [1.0], [-1.0]])
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        line.bias.zero_()
    labels = (rows[:, 0] > 0).long()
    make_plan = METHODS["boundary_shrink"].make_plan
    assert make_plan is not None
    plan = make_plan(line, {"forget": (rows, labels)}, BoundaryShrinkSettings(bound=0.3))
    assert plan.records["forget"][1].tolist() == [0, 1, 1, 0]


def test_fisher_adds_noise_by_how_little_a_weight_matters(model: nn.Module) -> None:
    importance = measure_importance(model, RETAIN, is_free=False)
    runs = [run("fisher", model, FisherSettings(strength=1e-6, seed=seed)) for seed in range(20)]
    for name, value in model.named_parameters():
        moves = torch.stack([dict(found.named_parameters())[name] - value for found in runs]).detach()
        expected = (1e-6 / importance[name]).sqrt().clamp(max=0.01)
        assert (moves / expected).std().item() == pytest.approx(1, abs=0.3), name


def test_noisy_sgd_is_sgd_with_noise_of_the_given_size(model: nn.Module) -> None:
    plain = descend(model, lambda m, _: entropy(m, RETAIN), torch.optim.SGD, 1, lr=0.01, weight_decay=1e-6)
    settings = NoisySgdSettings(epochs=1, noise=0.5, batch_size=None)
    noisy = run("noisy_sgd", model, settings)
    moves = torch.cat([(a - b).detach().flatten() for a, b in zip(noisy.parameters(), plain.parameters(), strict=True)])
    assert moves.std().item() == pytest.approx(0.005, rel=0.2)
    assert abs(moves.mean().item()) < 0.002


def test_retraining_knows_the_retain_records_alone(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    for value in other.parameters():
        nn.init.normal_(value)
    settings = RetrainSettings(epochs=5)
    found = run("retrain", model, settings)
    assert_alike(run("retrain", other, settings), found)
    torch.manual_seed(100)
    fresh = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    assert_alike(found, descend(fresh, lambda m, _: entropy(m, RETAIN), torch.optim.Adam, 5, lr=1e-3))


def test_records_are_gathered_from_any_source(model: nn.Module) -> None:
    data = TensorDataset(*FORGET)
    for source in (FORGET, data, DataLoader(data, batch_size=2)):
        inputs, labels = gather_pair(source, model)
        assert torch.equal(inputs, FORGET[0])
        assert torch.equal(labels, FORGET[1])
    loader = DataLoader([({"a": row}, label) for row, label in zip(*FORGET, strict=True)])
    with pytest.raises(InputError, match="records must be pairs of one input tensor and labels"):
        gather_pair(loader, model)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("random_labels", {"learning_rate": 1e-4, "epochs": 3}),
        ("salun", {"learning_rate": 0.013, "epochs": 10, "share": 0.5}),
        ("l1_sparse", {"learning_rate": 0.01, "epochs": 10}),
        ("ssd", {"threshold": 10.0, "strength": 1.0}),
        ("lfssd", {"threshold": 10.0, "strength": 1.0}),
        ("delete", {"learning_rate": 1e-4, "epochs": 20, "momentum": 0.9, "optimizer": "sgd"}),
        ("cf_k", {"learning_rate": 0.01, "epochs": 10, "n_layers": 1}),
        ("eu_k", {"learning_rate": 0.01, "epochs": 10, "n_layers": 1}),
        ("jit", {"learning_rate": 1e-3, "epochs": 1, "noise": 0.1, "n_draws": 10}),
        ("boundary_shrink", {"bound": 0.1}),
        ("fisher", {"strength": 1e-9}),
        ("noisy_sgd", {"weight_decay": 1e-6, "momentum": 0.0}),
        ("msg", {"learning_rate": 1e-3, "epochs": 5, "weight_decay": 5e-4, "share": 0.3, "slowness": 0.1}),
        ("ct", {"learning_rate": 1e-3, "epochs": 3}),
        ("unsir", {"learning_rate": 1e-4, "epochs": 1, "noise_rate": 0.1, "noise_steps": 25}),
        ("woodfisher", {"n_records": 1000}),
        ("scrub_rewind", {"learning_rate": 5e-4, "entropy_weight": 0.99, "divergence_weight": 0.5}),
    ],
)
def test_defaults_are_those_of_the_public_code(name: str, values: dict[str, Any]) -> None:
    settings = METHODS[name].settings()
    assert {key: getattr(settings, key) for key in values} == values
    assert METHODS[name].kind == "classifier"
    assert len(METHODS[name].list_choices()) > 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: SalunSettings(share=0.0),
        lambda: L1SparseSettings(penalty=-1.0),
        lambda: SsdSettings(threshold=0.0),
        lambda: LfssdSettings(strength=0.0),
        lambda: CfKSettings(n_layers=0),
        lambda: JitSettings(noise=0.0),
        lambda: JitSettings(n_draws=0),
        lambda: BoundaryShrinkSettings(bound=0.0),
        lambda: FisherSettings(strength=0.0),
        lambda: FisherSettings(largest=0.0),
        lambda: NoisySgdSettings(noise=0.0),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="must be a"):
        make()
