"""Steps by curvature against dense matrices: woodfisher and newton."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.unlearning import NewtonSettings, WoodFisherSettings, unlearn
from ruler.unlearning.classifier.curvature import multiply_by_fisher, solve

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(60, 4, generator=DRAW)
LABELS = torch.randint(0, 3, (60,), generator=DRAW)
FORGET, RETAIN = (ROWS[:5], LABELS[:5]), (ROWS[5:], LABELS[5:])


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3)).double()


def run(method: str, model: nn.Module, settings: Any) -> nn.Module:
    return unlearn(method, model, forget=FORGET, retain=RETAIN, settings=settings)


def list_gradients(model: nn.Module, pair: Any) -> torch.Tensor:
    """(n, p), one record at a time."""
    found = []
    for row, label in zip(*pair, strict=True):
        loss = functional.cross_entropy(model(row[None].double()), label[None])
        found.append(torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]))
    return torch.stack(found)


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def test_conjugate_gradients_solve_what_a_dense_solver_solves() -> None:
    root = torch.randn(12, 12, generator=DRAW, dtype=torch.float64)
    matrix, target = root @ root.T + torch.eye(12), torch.randn(12, generator=DRAW, dtype=torch.float64)
    found = solve(lambda x: matrix @ x, target, 50)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, target), rtol=1e-3, atol=1e-4)
    assert solve(lambda x: matrix @ x, torch.zeros(12, dtype=torch.float64), 5).tolist() == [0.0] * 12


def test_products_with_the_fisher_matrix_are_those_of_the_gradients_of_single_records(model: nn.Module) -> None:
    gradients = list_gradients(model, RETAIN)
    x = torch.randn(gradients.shape[1], generator=DRAW, dtype=torch.float64)
    found = multiply_by_fisher(model, RETAIN[0].double(), RETAIN[1])(x)
    torch.testing.assert_close(found, gradients.T @ (gradients @ x) / 55)


def test_woodfisher_is_a_step_by_the_dense_inverse(model: nn.Module) -> None:
    forget, retain = list_gradients(model, FORGET), list_gradients(model, RETAIN)
    matrix = retain.T @ retain / 55 + 0.05 * torch.eye(retain.shape[1])
    expected = 2 * torch.linalg.solve(matrix, 5 / 60 * (forget.mean(0) - retain.mean(0)))
    found = run("woodfisher", model, WoodFisherSettings(strength=2.0, damping=0.05, n_steps=200))
    torch.testing.assert_close(flatten(found) - flatten(model), expected, rtol=1e-3, atol=1e-5)
    sampled = run("woodfisher", model, WoodFisherSettings(strength=2.0, damping=0.05, n_records=20, n_steps=200))
    assert not torch.allclose(flatten(sampled), flatten(found), rtol=1e-3)


def test_newton_is_a_step_of_the_last_layer_by_the_dense_hessian(model: nn.Module) -> None:
    body, start = model[:3], torch.cat([model[3].weight, model[3].bias[:, None]], dim=1).detach()  # type: ignore[index, list-item]

    def measure(head: torch.Tensor, pair: Any) -> torch.Tensor:
        features = body(pair[0].double()).detach()
        logits = features @ head.reshape(3, 7)[:, :6].T + head.reshape(3, 7)[:, 6]
        return functional.cross_entropy(logits, pair[1])

    flat = start.flatten().requires_grad_()
    (pull,) = torch.autograd.grad(measure(flat, FORGET), flat)
    matrix: Any = torch.autograd.functional.hessian(lambda head: measure(head, RETAIN), flat)  # type: ignore[no-untyped-call]
    expected = 0.5 * torch.linalg.solve(matrix + 0.01 * torch.eye(21), 5 / 55 * pull).reshape(3, 7)
    found: Any = run("newton", model, NewtonSettings(strength=0.5, damping=0.01))
    torch.testing.assert_close(found[3].weight - model[3].weight, expected[:, :6], rtol=1e-3, atol=1e-6)  # type: ignore[index]
    torch.testing.assert_close(found[3].bias - model[3].bias, expected[:, 6], rtol=1e-3, atol=1e-6)  # type: ignore[index]
    assert torch.equal(found[0].weight, model[0].weight)  # type: ignore[index]


def fit(pair: Any) -> nn.Linear:
    """Logistic regression at its optimum."""
    head = nn.Linear(4, 3).double()
    mover = torch.optim.LBFGS(
        head.parameters(), lr=1, max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def close() -> torch.Tensor:
        mover.zero_grad()
        loss = functional.cross_entropy(head(pair[0].double()), pair[1]) + 1e-6 * sum(
            value.square().sum() for value in head.parameters()
        )
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    mover.step(close)  # type: ignore[no-untyped-call]
    return head


def test_newton_takes_a_regression_nearly_to_the_retrained_one() -> None:
    original, oracle = fit((ROWS, LABELS)), fit(RETAIN)
    unlearned = run("newton", original, NewtonSettings(damping=1e-6))
    near, far = (
        (one(ROWS.double()).softmax(1) - oracle(ROWS.double()).softmax(1)).abs().max().item()
        for one in (unlearned, original)
    )
    assert near < 0.15 * far


def test_newton_needs_a_linear_layer_at_the_end() -> None:
    class Halved(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return super().forward(rows) / 2

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.head(rows) / 2

    with pytest.raises(InputError, match="model must end with its last linear layer; got other logits"):
        run("newton", Last(), NewtonSettings())
    with pytest.raises(InputError, match="got one without linear layers"):
        run("newton", nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 3, 1), nn.Flatten()), NewtonSettings())


def test_modes_and_weights_of_the_original_stay(model: nn.Module) -> None:
    before, model = copy.deepcopy(model.state_dict()), model.train()
    for method in ("woodfisher", "newton"):
        assert run(method, model, None).training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", [WoodFisherSettings, NewtonSettings])
@pytest.mark.parametrize("wrong", [{"strength": 0.0}, {"damping": 0.0}, {"n_steps": 0}])
def test_settings_that_make_no_sense_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be a"):
        kind(**wrong)
