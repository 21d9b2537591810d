from benchmarks.ensemble import SIZES, main
from ruler.data import TABULAR_SETS


def test_sizes_are_those_of_the_training_parts():
    expected = {name: (entry.n_rows - -(-entry.n_rows // 5), entry.n_features) for name, entry in TABULAR_SETS.items()}
    assert expected == SIZES


def test_both_ways_are_timed(monkeypatch, capsys):
    words = "ensemble --datasets heart_disease --seeds 1 --epochs 1 --one-by-one 2"
    monkeypatch.setattr("sys.argv", words.split())
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["heart_disease", "all,"]
    assert all("together" in line and "ratio" in line for line in lines)
