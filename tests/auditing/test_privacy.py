"""What an attacker achieves with the best contrast."""

from dataclasses import replace

import numpy as np
from tests.auditing.cases import FAST

from ruler.auditing import gather_evidence
from ruler.auditing.measure import measure_contrasts
from ruler.auditing.privacy import measure_privacy


def test_epsilon_proves_nothing_where_nothing_leaks_and_something_where_all_does(build_world):
    settings = replace(FAST, n_permutations=99)
    found = []
    for seed in range(30):
        world = build_world(seed, sizes=(60, 80, 120))
        evidence = gather_evidence(world.model(gain=0.0), oracle=world.model(gain=0.0), settings=settings)
        found.append(measure_privacy(evidence, measure_contrasts(evidence)).epsilon)
    assert np.mean(np.array(found) == 0) >= 0.9
    world = build_world(0)
    evidence = gather_evidence(world.model(3.0, gain=5.0), oracle=world.model(gain=0.0), settings=settings)
    leak = measure_privacy(evidence, measure_contrasts(evidence))
    assert leak.epsilon > 0.5
    assert leak.true_positive_rate > 0.3
    assert leak.true_positive_interval[0] < leak.true_positive_rate < leak.true_positive_interval[1]
