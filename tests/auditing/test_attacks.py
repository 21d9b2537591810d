"""Models are audited again after an attack on all of them, and the worst verdict counts."""

import json
from dataclasses import replace

import pytest
from tests.auditing.cases import FAST, make_cleared
from tests.embeddings.bundle.language import COUNTS, build, make_rows, make_tokenizer

import ruler
from ruler.auditing.attacks import choose_attacks, combine_verdicts, describe_attack, share_alpha
from ruler.auditing.findings import Report
from ruler.auditing.seal.check import check_report
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import count_flagged, decide
from ruler.core.errors import InputError, UnknownNameError
from ruler.embeddings.language.attacks import quantize_model, relearn_records
from ruler.embeddings.prompts import encode_prompts

QUANTIZE, RELEARN = choose_attacks(["quantize", "relearn"])


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


def make_reports(build_world):
    """A model that is erased, and one whose traces are seen, of the same records."""
    cleared = make_cleared(build_world)
    residual = ruler.audit(cleared["original"], oracle=cleared["oracle"], original=cleared["original"], settings=FAST)
    return ruler.audit(**cleared), residual


# each attack is an audit of its own


@pytest.mark.parametrize("name", ["quantize", "relearn"])
def test_every_model_is_attacked_alike_and_audited_at_its_share_of_alpha(name, models, sides, attacked):
    def attack(model):
        return (
            quantize_model(model)
            if name == "quantize"
            else relearn_records(model, [sides["forget"], sides["held_out"]])
        )

    changed = {key: attack(model) for key, model in models.items()}
    expected = ruler.audit_models(**changed, **sides, settings=replace(FAST, alpha=FAST.alpha / 3))
    found = attacked.attacks[name]
    assert attacked.settings.alpha == FAST.alpha / 3
    assert found.metrics.keys() == expected.metrics.keys()
    for key, metric in expected.metrics.items():
        assert found.metrics[key].effect == metric.effect
        assert found.metrics[key].p_value == metric.p_value


def test_the_plain_numbers_stay_those_of_an_audit_without_attacks(models, sides, attacked):
    plain = ruler.audit_models(**models, **sides, settings=FAST)
    assert plain.attacks == {}
    for name, metric in plain.metrics.items():
        assert (attacked.metrics[name].value, attacked.metrics[name].effect) == (metric.value, metric.effect)


def test_alpha_is_shared_by_all_audits():
    assert share_alpha(AuditSettings(alpha=0.03), []).alpha == 0.03
    assert share_alpha(AuditSettings(alpha=0.03), [QUANTIZE, RELEARN]).alpha == pytest.approx(0.01)


# the worst verdict counts


@pytest.mark.parametrize(
    ("plain", "after", "verdict", "said"),
    [
        ("erased", ["erased", "erased"], "erased", "because. After"),
        ("erased", ["erased", "residual"], "residual", "What comes back was not erased. After one epoch"),
        ("erased", ["displaced", "residual"], "residual", "What comes back was not erased. After one epoch"),
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
        for attack, word in zip((QUANTIZE, RELEARN), after, strict=True)
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
    assert json.loads(json.dumps(attacked.to_dict()))["attacks"]["relearn"]["words"].startswith("one epoch")
