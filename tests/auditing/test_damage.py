"""Whether a model still works."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import make_cleared

from ruler.auditing import audit, audit_evidence, gather_evidence
from ruler.auditing.damage import linear_cka
from ruler.core.types import Embeddings


def test_a_destroyed_model_is_damaged_and_a_clean_one_is_not(build_world):
    given = make_cleared(build_world)
    rng = np.random.default_rng(99)
    noise = tuple(Embeddings(rng.normal(size=part.shape), losses=part.losses) for part in given["unlearned"])
    report = audit(**given | {"unlearned": noise})
    assert report.verdict == "damaged"
    assert report.damage.similarity < 0.3
    assert not audit(**given).damage.is_damaged
    # accuracy tells where representations do not
    evidence = gather_evidence(
        **given | {"unlearned": tuple(replace(part, labels=np.arange(len(part)) % 2) for part in given["unlearned"])}
    )
    right = {"oracle": {"retain_accuracy": 0.9}, "unlearned": {"retain_accuracy": 0.55}}
    assert audit_evidence(evidence, outputs=right).verdict == "damaged"
    assert audit_evidence(evidence, outputs=right | {"unlearned": {"retain_accuracy": 0.88}}).verdict == "erased"


def test_linear_cka_is_its_kernel_form_and_knows_neither_axes_nor_scale():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 5))
    second = np.hstack([first[:, :3] + rng.normal(size=(40, 3)), rng.normal(size=(40, 4))])
    centre = np.eye(40) - 1 / 40
    one, other = (centre @ rows @ rows.T @ centre for rows in (first, second))
    expected = (one * other).sum() / np.sqrt((one * one).sum() * (other * other).sum())
    assert linear_cka(first, second) == pytest.approx(expected)
    turned = 3.0 * second @ ortho_group.rvs(7, random_state=0) + 2.0
    assert linear_cka(first, turned) == pytest.approx(expected)
    assert linear_cka(first, np.ones((40, 2))) == 0.0
