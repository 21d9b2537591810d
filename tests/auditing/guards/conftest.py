"""Sound models for every guard."""

import pytest
from tests.auditing.guards.cases import N_FORGET, N_HELD_OUT, N_RETAIN, cut, make_models


@pytest.fixture
def models(random):
    rows = make_models(random, random.normal(size=(N_FORGET + N_RETAIN + N_HELD_OUT, 10)))
    return {name: cut(value) for name, value in rows.items()}
