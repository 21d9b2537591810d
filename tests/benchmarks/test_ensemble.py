from benchmarks.ensemble import SIZES, main
from ruler.data import DATASETS, list_datasets


def test_sizes_are_those_of_the_training_parts():
    entries = [DATASETS[key] for key in list_datasets("primary")]
    expected = {entry.key: (entry.n_rows - -(-entry.n_rows // 5), entry.n_features) for entry in entries}
    assert expected == SIZES


def test_both_ways_are_timed(monkeypatch, capsys):
    words = "ensemble --datasets heart_disease --seeds 1 --epochs 1 --one-by-one 2"
    monkeypatch.setattr("sys.argv", words.split())
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["heart_disease", "all,"]
    assert all("together" in line and "ratio" in line for line in lines)
