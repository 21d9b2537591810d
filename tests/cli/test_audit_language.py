"""`ruler audit` on folders of language models, and of adapters on one."""

import json
import sys
from importlib.util import find_spec

import pytest
import torch
from tests.embeddings.bundle.language import COUNTS, build, save, write_tables

import ruler
import ruler.cli
from ruler.core.readers.pretrained import load_pretrained, quiet_transformers
from ruler.embeddings.prompts import encode_prompts

pytest.importorskip("transformers")
DATA = """
[data]
forget = "forget.jsonl"
retain = "retain.jsonl"
held_out = "held_out.jsonl"
prompt = "question"
completion = "answer"
"""
EXIT_STATUSES = {"erased": 0, "residual": 1, "displaced": 1, "damaged": 1, "inconclusive": 3}


@pytest.fixture
def audit(monkeypatch, tmp_path):
    """Audit what a TOML file names; gives the exit status and the report."""
    monkeypatch.setenv("COLUMNS", "200")
    write_tables(tmp_path)

    def run(models, data="", options=()):
        (tmp_path / "audit.toml").write_text(f"[models]\n{models}\n{DATA}{data}")
        out = tmp_path / "report"
        words = ["ruler", "audit", str(tmp_path / "audit.toml"), "--out", str(out), "--quiet", *options]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            ruler.cli.main()
        status = stop.value.code or 0
        return status, json.loads((out / "report.json").read_text()) if status != 2 else None

    return run


@pytest.mark.parametrize(
    ("kind", "layers", "n_tokens"),
    [
        ("gpt2", ["transformer"], "3 to 7"),  # 2 to 6 words and the end
        ("llama", ["model"], "3 to 7"),
        ("t5", ["decoder"], "4 to 8"),  # and the beginning
    ],
)
def test_folders_of_language_models_are_audited(kind, layers, n_tokens, audit, tmp_path):
    for seed, name in enumerate(("unlearned", "oracle", "original")):
        save(build(kind, seed), tmp_path / name)
    status, report = audit('unlearned = "unlearned"\noracle = "oracle"\noriginal = "original"')
    assert status == EXIT_STATUSES[report["verdict"]]
    known = report["provenance"]
    assert known["layers"] == layers
    assert known["pooling"] == "mean over the positions that predict a completion token"
    assert known["records"] == "prompt and completion as '{prompt}{completion}'"
    assert known["tokens"]["forget"].startswith(f"{n_tokens} that count per record")
    assert known["loss"] == "mean negative log-likelihood per token"
    assert {"m1", "m2", "m4", "loss"} <= report["metrics"].keys()


def test_python_and_the_command_line_agree(audit, tmp_path):
    for seed, name in enumerate(("unlearned", "oracle")):
        save(build("llama", seed), tmp_path / name)
    _, report = audit(
        'unlearned = "unlearned"\noracle = "oracle"\npooling = "last"\nlayer = ["model.layers.0", "model"]',
        "template = true\n",
    )
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path / "unlearned")
    sides = {}
    for side in COUNTS:
        rows = [json.loads(line) for line in (tmp_path / f"{side}.jsonl").read_text().splitlines()]
        texts = [row["question"] for row in rows], [row["answer"] for row in rows]
        sides[side] = {**encode_prompts(tokenizer, *texts, template=True), "id": [row["id"] for row in rows]}
    expected = ruler.audit_models(
        build("llama", 0), oracle=build("llama", 1), **sides, layer=["model.layers.0", "model"], pooling="last"
    )
    assert report["provenance"]["records"] == "prompt and completion by the tokenizer's chat template"
    assert report["provenance"]["pooling"] == expected.provenance["pooling"] == "last token that is no padding"
    assert report["verdict"] == expected.verdict
    for name in ("m4", "loss"):  # others need an alignment, whose folds follow the last bits of the records
        assert report["metrics"][name]["value"] == pytest.approx(expected.metrics[name].value, abs=1e-6)


@pytest.mark.parametrize("is_named", [False, True])
def test_adapters_are_merged_into_their_base(is_named, audit, tmp_path):
    peft = pytest.importorskip("peft")
    save(build("llama"), tmp_path / "base")
    merged = {}
    for seed, name in enumerate(("unlearned", "oracle")):
        model = peft.get_peft_model(build("llama"), peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
        torch.manual_seed(seed)
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.2)
        model.peft_config["default"].base_model_name_or_path = "someone/elsewhere" if is_named else "base"
        with quiet_transformers():
            model.save_pretrained(tmp_path / name, save_embedding_layers=False)  # else it asks the hub
        merged[name] = model.merge_and_unload()
    base = 'base = "base"\n' if is_named else ""
    _, report = audit(f'unlearned = "unlearned"\noracle = "oracle"\noriginal = "base"\n{base}')
    for name, model in merged.items():
        save(model, tmp_path / f"{name}-merged")
    _, expected = audit('unlearned = "unlearned-merged"\noracle = "oracle-merged"\noriginal = "base"')
    assert report["verdict"] == expected["verdict"]
    assert report["provenance"]["adapters"].endswith("base")
    assert report["provenance"]["inputs"]["base"].keys() >= {"config.json", "model.safetensors"}
    for name, metric in expected["metrics"].items():
        assert report["metrics"][name]["value"] == pytest.approx(metric["value"], abs=1e-5)


def test_an_adapter_without_its_base_is_told(audit, tmp_path, capsys):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(build("llama"), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    model.save_pretrained(tmp_path / "unlearned", save_embedding_layers=False)
    assert audit('unlearned = "unlearned"')[0] == 2
    assert "name the folder of the base model as models.base" in capsys.readouterr().err


def test_half_precision_and_missing_packages(audit, tmp_path, capsys):
    save(build("llama"), tmp_path / "unlearned")
    _, report = audit('unlearned = "unlearned"\ndtype = "bfloat16"\ndevice_map = "auto"', options=["--layer", "all"])
    assert report["provenance"]["dtype"] == "bfloat16"
    assert report["provenance"]["layers"] == ["model.layers.0", "model.layers.1", "model"]
    pytest.importorskip("accelerate")
    if find_spec("bitsandbytes") is None:
        assert audit('unlearned = "unlearned"\nload_in = "4bit"')[0] == 2
        assert "load_in = '4bit' needs the package 'bitsandbytes'" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("load_in", "apart"), [("8bit", 0.02), ("4bit", 0.2)])
def test_eight_and_four_bits_are_near_the_whole_weights(load_in, apart, device, audit, tmp_path):
    pytest.importorskip("bitsandbytes")
    wide = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2}
    save(build("llama", **wide), tmp_path / "unlearned")
    model, _ = load_pretrained(tmp_path / "unlearned", load_in=load_in)
    assert sum("bit" in type(module).__name__ for module in model.modules()) == 14  # seven per block
    assert next(model.parameters()).device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    options = ["--device", device]
    _, whole = audit('unlearned = "unlearned"', options=options)
    _, report = audit(f'unlearned = "unlearned"\nload_in = "{load_in}"', options=options)
    assert report["provenance"]["load_in"] == load_in
    assert report["metrics"]["loss"]["value"] == pytest.approx(whole["metrics"]["loss"]["value"], abs=apart)
    assert report["metrics"]["loss"]["value"] != whole["metrics"]["loss"]["value"]


@pytest.mark.parametrize(("attack", "alpha"), [("quantize", 0.02), ("relearn", 0.04)])
def test_an_attacked_audit_can_be_repeated_to_the_bit(audit, tmp_path, monkeypatch, capsys, attack, alpha):
    for seed, name in enumerate(("unlearned", "oracle")):
        save(build("gpt2", seed), tmp_path / name)
    models = f'unlearned = "unlearned"\noracle = "oracle"\nattack = "{attack}"'
    _, report = audit(models, options=["--alpha", "0.04"])
    assert list(report["attacks"]) == ["quantize"] * (attack == "quantize")
    assert ("relearned" in report["metrics"]) == (attack == "relearn")
    assert report["settings"]["alpha"] == alpha
    monkeypatch.setattr(sys, "argv", ["ruler", "verify", str(tmp_path / "report"), "--rerun"])
    with pytest.raises(SystemExit) as stop:
        ruler.cli.main()
    assert "gives the same report, to the bit" in capsys.readouterr().out
    assert not stop.value.code
