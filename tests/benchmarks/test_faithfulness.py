from collections import Counter

from benchmarks.faithfulness import list_planned


def test_the_pool_is_balanced_in_every_part():
    pool = list_planned()
    assert len({model.name for model in pool}) == len({model.seed for model in pool}) == 60
    assert Counter((model.knows, model.is_hard) for model in pool) == dict.fromkeys(
        [(True, False), (False, False), (True, True), (False, True)], 15
    )
    for knows in (True, False):
        settings = Counter((model.learning_rate, model.epochs) for model in pool if model.knows == knows)
        others = Counter((model.learning_rate, model.epochs) for model in pool if model.knows != knows)
        assert settings == others
    assert {model.forget for model in pool[:4]} == {"true", "none", "paraphrased", "perturbed"}
