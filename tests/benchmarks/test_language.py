import json

import pytest

from benchmarks import language


def test_both_ways_are_timed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["language", "--quick", "--json", str(tmp_path / "times.json")])
    language.main()
    lines = json.loads((tmp_path / "times.json").read_text())
    assert [line["work"].split(",")[0] for line in lines] == ["fine-tuning", *["reading 4"] * 2]
    assert all(line["plain_s"] > 0 and line["ours_s"] > 0 for line in lines)
    assert "RULER, s" in capsys.readouterr().out


@pytest.mark.parametrize("is_ragged", [False, True])
def test_completions_are_the_second_half(is_ragged):
    records = language.draw_records(20, 50, "cpu", is_ragged=is_ragged)
    n_asked, n_tokens = (records["labels"] != -100).sum(1), records["attention_mask"].sum(1)
    assert (n_asked == n_tokens - n_tokens // 2).all()
    assert (len(set(n_tokens.tolist())) > 1) == is_ragged
