"""Attacks on all models of an audit: relearning adds a contrast, four-bit weights an audit of their own."""

import copy
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.auditing.cases import FAST, make_cleared
from tests.embeddings.bundle.language import COUNTS, build, make_rows, make_tokenizer
from torch import nn
from torch.nn import functional

import ruler
import ruler.core.progress
from ruler.auditing.attacks import Attack, choose_attacks, combine_verdicts, describe_attack, share_alpha, split_halves
from ruler.auditing.findings import Report
from ruler.auditing.order import hash_content
from ruler.auditing.seal.check import check_report
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import count_flagged, decide
from ruler.core.errors import InputError, UnknownNameError
from ruler.embeddings import embed, losses
from ruler.embeddings.language.attacks import quantize_model
from ruler.embeddings.prompts import encode_prompts
from ruler.embeddings.relearning import relearn_records

QUANTIZE, RELEARN = choose_attacks(["quantize", "relearn"])
NOISE = Attack("noise", "noise was added to the weights", copy.deepcopy)
SIZES = {"forget": 100, "retain": 300, "held_out": 200}


def encode(side):
    rows = make_rows(side)
    texts = [row["question"] for row in rows], [row["answer"] for row in rows]
    return encode_prompts(make_tokenizer(), *texts, template=True)


@pytest.fixture(scope="module")
def sides():
    return {side: encode(side) for side in COUNTS}


@pytest.fixture(scope="module")
def models():
    return {name: build("llama", seed) for seed, name in enumerate(("unlearned", "oracle", "original"))}


@pytest.fixture(scope="module")
def attacked(models, sides):
    return ruler.audit_models(**models, **sides, attack=["quantize", "relearn"], settings=FAST)


def make_network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 6))


def train(model, parts, n_steps, rate=3e-3, parameters=None):
    """On the mean of the mean losses of some sets of records."""
    optimizer = torch.optim.Adam(parameters or model.parameters(), lr=rate)
    for _ in range(n_steps):
        optimizer.zero_grad()
        sum(weight * functional.cross_entropy(model(rows), labels) for weight, rows, labels in parts).backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def records():
    """Random rows with random labels 0 to 4: whoever answers well has seen them."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(SIZES.values()), 32, generator=generator)
    labels = torch.randint(5, (len(rows),), generator=generator)
    parts = zip(rows.split(list(SIZES.values())), labels.split(list(SIZES.values())), strict=True)
    return dict(zip(SIZES, parts, strict=True))


@pytest.fixture(scope="module")
def networks(records):
    """Trained on forget and retain records, on retain records only, on both from another start; and one that refuses.

    The one that refuses is the original with a head that was taught to answer class 5 to the forget records.
    """
    retain = (1.0, *records["retain"])
    everything = [(0.25, *records["forget"]), (0.75, *records["retain"])]
    original = train(make_network(0), everything, 60)
    refusing = copy.deepcopy(original)
    refused = 3.0, records["forget"][0], torch.full((SIZES["forget"],), 5)
    return {
        "original": original,
        "clean": train(make_network(1), [retain], 60),
        "again": train(make_network(2), everything, 60),
        "refusing": train(refusing, [retain, refused], 600, 3e-2, list(refusing[-1].parameters())),
    }


@pytest.fixture(scope="module")
def relearned(networks, records):
    audit = partial(ruler.audit_models, original=networks["original"], **records, attack="relearn", settings=FAST)
    return {name: audit(networks[name]) for name in ("clean", "again", "refusing")}


def make_reports(build_world):
    """A model that is erased, and one that is residual, of the same records."""
    cleared = make_cleared(build_world)
    residual = ruler.audit(cleared["original"], oracle=cleared["oracle"], original=cleared["original"], settings=FAST)
    return ruler.audit(**cleared), residual


# relearning one half and reading the other


def test_a_clean_model_reads_zero_and_a_knowing_one_one(relearned):
    clean, again = (relearned[name].metrics["relearned"] for name in ("clean", "again"))
    assert (clean.verdict, again.verdict) == ("erased", "residual")
    for scale in ("original", "members"):
        assert clean.remaining[scale].low < 0 < clean.remaining[scale].high
        assert clean.remaining[scale].value == pytest.approx(0.0, abs=0.1)
        assert again.remaining[scale].value == pytest.approx(1.0, abs=0.1)


def test_what_only_the_head_hides_comes_back(relearned):
    metrics = relearned["refusing"].metrics
    assert metrics["loss"].remaining["original"].value < 0.3
    assert metrics["relearned"].remaining["original"].value > 0.7
    assert metrics["relearned"].verdict == "residual"
    assert metrics["relearned"].family == "layers"


def test_every_record_is_read_from_a_model_that_did_not_relearn_it(models, sides, attacked):
    rows = {side: embed(models["unlearned"], one).values for side, one in sides.items()}
    halves = split_halves({side: hash_content(one) for side, one in rows.items()}, {})
    forget, is_second = sides["forget"], halves.second["forget"]
    found = np.empty(len(is_second))
    for half, is_read in zip(halves.relearned, (is_second, ~is_second), strict=True):
        assert not is_read[half["forget"]].any()
        parts = [(sides[side], own) for side, own in half.items()]
        rate = attacked.provenance["relearned"]["learning_rate"]
        trained = relearn_records(models["unlearned"], parts, kind=losses.TOKENS, learning_rate=rate)
        found[is_read] = embed(trained, forget).losses[is_read]
    assert attacked.metrics["relearned"].value == pytest.approx(-found.mean(), rel=1e-4)


class Divided(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, rows):
        return rows / self.by


def stiffen(network, factor):
    """The same function of its inputs, by weights so large that steps of a usual size change nothing."""
    layers = []
    for layer in copy.deepcopy(network):
        if isinstance(layer, nn.Linear):
            layers.append(Divided(factor))
            layer.weight.data *= factor
        layers.append(layer)
    return nn.Sequential(*layers)


def test_the_learning_rate_is_raised_until_relearning_teaches_something(networks, records, relearned):
    assert relearned["again"].provenance["relearned"] == {"epochs": 1, "learning_rate": 1e-3}
    audit = partial(ruler.audit_models, **records, attack="relearn", settings=FAST)
    report = audit(stiffen(networks["again"], 10.0))
    assert report.provenance["relearned"]["learning_rate"] > 2e-3
    assert report.metrics["relearned"].remaining["members"].value == pytest.approx(1.0, abs=0.15)
    report = audit(stiffen(networks["again"], 1e4))
    assert [guard.name for guard in report.guards] == ["relearning_weak"]
    assert "relearned" not in report.metrics
    assert "relearned" not in report.provenance


def test_halves_are_by_content_and_alike_in_size():
    keys = {"forget": np.array([5, 1, 9, 7, 3]), "held_out": np.arange(400)[::-1]}
    halves = split_halves(keys, {})
    assert halves.second["forget"].tolist() == [False, False, False, True, True]  # every other one, by key
    for is_second, rows in zip((False, True), halves.relearned, strict=True):
        assert len(rows["held_out"]) == 32  # as few forget records would train too little
        assert (halves.second["held_out"][rows["held_out"]] == is_second).all()
    order = np.random.default_rng(0).permutation(400)
    moved = split_halves({**keys, "held_out": keys["held_out"][order]}, {})
    assert (moved.second["held_out"] == halves.second["held_out"][order]).all()
    many = split_halves({"forget": np.arange(100), "held_out": np.arange(400)}, {})
    assert [len(rows["held_out"]) for rows in many.relearned] == [50, 50]


def test_every_group_is_split_and_all_of_its_half_is_relearned():
    rng = np.random.default_rng(0)
    groups = {"forget": np.repeat(["ann", "bob"], [4, 3]), "held_out": np.arange(300) // 6}
    keys = {side: rng.permutation(len(names)) for side, names in groups.items()}
    halves = split_halves(keys, groups)
    for side, names in groups.items():
        for name in np.unique(names):
            n_second = halves.second[side][names == name].sum()
            assert n_second in ((names == name).sum() // 2, ((names == name).sum() + 1) // 2)
        relearned = np.concatenate([rows[side] for rows in halves.relearned])
        assert sorted(relearned) == list(range(len(names)))


def test_relearning_gives_the_same_report_again_and_depends_on_the_seed(models, sides, attacked):
    audit = partial(ruler.audit_models, models["unlearned"], **sides, attack="relearn")
    again, other = audit(settings=FAST), audit(settings=replace(FAST, seed=1))
    assert again.metrics["relearned"].value == attacked.metrics["relearned"].value
    assert other.metrics["relearned"].value != attacked.metrics["relearned"].value


def test_layers_without_oracle_and_classes_are_judged_by_relearning_only(models, sides):
    given = {"unlearned": models["unlearned"], "original": models["original"], **sides, "settings": FAST}
    plain, report = ruler.audit_models(**given), ruler.audit_models(**given, attack="relearn")
    assert plain.layers.remaining is None
    assert report.layers.remaining is not None
    assert report.layers.remaining.contrast == "relearned"
    assert report.attacks == {}
    assert report.settings.alpha == FAST.alpha


def test_progress_of_relearning_is_shown(models, sides, capsys, monkeypatch):
    monkeypatch.setattr(ruler.core.progress, "SECONDS_PER_LINE", 0.0)
    for is_shown in (False, True):
        ruler.audit_models(models["unlearned"], **sides, attack="relearn", progress=is_shown, settings=FAST)
        assert ("relearning: " in capsys.readouterr().err) == is_shown


def test_relearning_needs_held_out_records_and_losses(networks, records):
    without = {side: records[side] for side in ("forget", "retain")}
    with pytest.raises(InputError, match="at least 2 held-out records; got 0"):
        ruler.audit_models(networks["clean"], **without, attack="relearn")
    bare = {side: rows for side, (rows, _) in records.items()}
    with pytest.raises(InputError, match=r"must have losses of all records; got none\. The data carries no labels"):
        ruler.audit_models(networks["clean"], **bare, attack="relearn")
    with pytest.raises(InputError, match="groups of forget must be one per record"):
        ruler.audit_models(networks["clean"], **records, groups=[1, 2], attack="relearn")


# four bits are an audit of their own


def test_every_model_is_quantized_alike_and_audited_at_its_share_of_alpha(models, sides, attacked):
    changed = {key: quantize_model(model) for key, model in models.items()}
    settings = replace(FAST, alpha=FAST.alpha / 2)
    expected = ruler.audit_models(**changed, **sides, settings=settings)
    found = attacked.attacks["quantize"]
    assert attacked.settings.alpha == FAST.alpha / 2
    assert found.metrics.keys() == expected.metrics.keys() | {"relearned"}
    for key, metric in expected.metrics.items():
        assert found.metrics[key].effect == metric.effect


def test_the_plain_numbers_stay_those_of_an_audit_without_attacks(models, sides, attacked):
    plain = ruler.audit_models(**models, **sides, settings=FAST)
    assert plain.attacks == {}
    for name, metric in plain.metrics.items():
        assert (attacked.metrics[name].value, attacked.metrics[name].effect) == (metric.value, metric.effect)


def test_alpha_is_shared_by_all_audits():
    assert share_alpha(AuditSettings(alpha=0.03), []).alpha == 0.03
    assert share_alpha(AuditSettings(alpha=0.03), [QUANTIZE, NOISE, RELEARN]).alpha == pytest.approx(0.01)


# the worst verdict counts


@pytest.mark.parametrize(
    ("plain", "after", "verdict", "said"),
    [
        ("erased", ["erased", "erased"], "erased", "because. After"),
        ("erased", ["erased", "residual"], "residual", "What comes back was not erased. After noise"),
        ("erased", ["displaced", "residual"], "residual", "What comes back was not erased. After noise"),
        ("inconclusive", ["displaced", "erased"], "displaced", "What comes back was not erased. After the weights"),
        ("erased", ["inconclusive", "erased"], "inconclusive", "would count as erased, but not after the weights"),
        ("erased", ["invalid", "erased"], "inconclusive", "where the audit is invalid"),
        ("inconclusive", ["erased", "erased"], "inconclusive", "because."),
        ("residual", ["erased", "erased"], "residual", "because. After the weights"),
        ("residual", ["inconclusive", "erased"], "residual", "because. After the weights"),
        ("invalid", ["inconclusive", "erased"], "invalid", "because. After the weights"),
        ("displaced", ["residual", "erased"], "displaced", "because."),
        ("damaged", ["residual", "erased"], "damaged", "because."),
        ("invalid", ["residual", "erased"], "invalid", "because."),
    ],
)
def test_the_worst_verdict_counts(plain, after, verdict, said, build_world):
    report, _ = make_reports(build_world)
    found = {
        attack.name: replace(describe_attack(attack, report, 0), verdict=word, reason="so.")
        for attack, word in zip((QUANTIZE, NOISE), after, strict=True)
    }
    combined, reason = combine_verdicts(plain, "because.", found)
    assert combined == verdict
    assert said in reason


def test_what_comes_back_was_not_erased(build_world, tmp_path):
    erased, residual = make_reports(build_world)
    assert (erased.verdict, residual.verdict) == ("erased", "residual")
    finding = describe_attack(QUANTIZE, residual, count_flagged(residual))
    report = decide(replace(erased, attacks={"quantize": finding}))
    assert report.verdict == "residual"
    assert report.reason.startswith("What comes back was not erased. After the weights of linear layers")
    assert decide(replace(erased, attacks={"quantize": describe_attack(QUANTIZE, erased, 0)})).verdict == "erased"
    report.save(tmp_path)
    again = Report.load(tmp_path)
    assert again.attacks["quantize"].metrics["loss"] == report.attacks["quantize"].metrics["loss"]
    assert "quantize: residual" in str(again)
    assert "Does it hold under attack?" in (tmp_path / "report.html").read_text()
    assert all(check.holds is not False for check in check_report(tmp_path))


def test_a_verdict_under_attack_that_was_changed_is_found(build_world, tmp_path):
    erased, residual = make_reports(build_world)
    finding = describe_attack(QUANTIZE, residual, count_flagged(residual))
    report = decide(replace(erased, attacks={"quantize": finding}))
    calm = replace(report.attacks["quantize"], verdict="erased")
    replace(report, verdict="erased", attacks={"quantize": calm}).save(tmp_path)
    faults = [check.message for check in check_report(tmp_path) if check.holds is False]
    assert any("After the attack quantize, the numbers give residual; the report says erased." in one for one in faults)


# what cannot be attacked


def test_unknown_attacks_are_told():
    with pytest.raises(UnknownNameError, match="Did you mean 'quantize'"):
        choose_attacks("quantise")


def test_embeddings_are_not_attacked(tmp_path):
    from ruler.auditing.request import audit_config

    (tmp_path / "audit.toml").write_text('[embeddings]\nunlearned = "rows"\n')
    with pytest.raises(InputError, match="attack must be used with models"):
        audit_config(tmp_path / "audit.toml", attacks=["quantize"])


def test_the_report_is_json(attacked):
    told = json.loads(json.dumps(attacked.to_dict()))
    assert told["attacks"]["quantize"]["words"].startswith("the weights of linear layers")
    assert "relearned" in told["metrics"]
