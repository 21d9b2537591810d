"""One tiny comparison, looked at from all sides."""

import csv
import io
import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ruler
from ruler.core.errors import InputError
from ruler.data import DATASETS, ImageData, ImageSet, ImageSplit, register_dataset
from ruler.experiment.store import load_results
from ruler.metrics.peers import PEERS, Peer, PeerValue
from ruler.unlearning import METHODS

HOSTILE = "<script>alert(1)</script>"


def _break(forget_predictions):
    raise ZeroDivisionError("no number")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 3)), columns=["a", "b", "c"])
    frame["sick"] = (frame["a"] + 1.5 * rng.normal(size=160) > 0).astype(int)
    frame.to_csv(folder / "own.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path):
    if "hostile_of_tests" not in METHODS:
        METHODS.register("hostile_of_tests", replace(METHODS["fine_tuning"], title=HOSTILE))
        PEERS.register("broken_of_tests", Peer("Broken", "Why?", _break, needs=("forget_predictions",)))
        hits = lambda forget_predictions: PeerValue(0.25)  # noqa: E731
        PEERS.register("quarter_of_tests", Peer("Quarter", "One quarter?", hits, needs=("forget_predictions",)))

    def compare() -> ruler.Comparison:
        return ruler.compare(
            folder / "own.csv",
            target="sick",
            forget=0.3,
            methods={"retrain": {}, "ssd": {"threshold": [0.5, 1.0]}, "hostile_of_tests": {"epochs": 1}},
            metrics=["cka", "lira", "u_lira", "klom", "quarter_of_tests", "broken_of_tests"],
            seeds=3,
            training={"epochs": 60},  # until the original knows its records
            out=folder / "out",
            jobs=1,
        )

    return compare


@pytest.fixture(scope="module")
def found(run) -> ruler.Comparison:
    return run()


def test_every_method_and_choice_of_settings_has_a_row_with_intervals_over_its_runs(found) -> None:
    assert found.table["title"].tolist() == [
        *("Original", "Retraining", "SSD (threshold=0.5)", "SSD (threshold=1.0)", f"{HOSTILE} (epochs=1)")
    ]
    assert found.table["runs"].tolist() == [3] * 5
    assert len(found.runs) == 15
    ours = found.runs[found.runs["method"] == "retrain"]["cka"]
    row = found.table[found.table["method"] == "retrain"].iloc[0]
    reach = 4.302653 * ours.std(ddof=1) / math.sqrt(3)  # Student's 97.5% point with two degrees of freedom
    assert (row.cka, row.cka_low, row.cka_high) == pytest.approx(
        (ours.mean(), ours.mean() - reach, ours.mean() + reach)
    )
    assert (found.table["quarter_of_tests"] == 0.25).all()


def test_costs_are_multiples_of_retraining(found) -> None:
    cost = found.table.set_index("method")["cost"]
    assert cost["original"] == 0
    assert 0.2 < cost["retrain"] < 5
    assert (found.table["cost"][1:] > 0).all()


def test_what_remains_is_the_worse_of_what_the_model_says_and_what_its_layers_hold(found) -> None:
    families = found.runs[["outputs_remaining", "layers_remaining"]].abs()
    assert found.runs["remaining"].to_numpy() == pytest.approx(families.max(axis=1, skipna=False), nan_ok=True)
    means = found.table.set_index("method")["remaining"]
    assert means["original"] == pytest.approx(1.0)
    assert means["retrain"] < 0.3 < means["hostile_of_tests"]
    rows = load_results(found.out)
    for name in families:
        is_bounded = np.isfinite(rows[f"{name}_low"]) & np.isfinite(rows[f"{name}_high"])
        assert sorted(rows.loc[is_bounded, name]) == sorted(found.runs[name].dropna())


def test_every_missing_number_has_its_reason_and_a_metric_that_fails_stops_no_other(found) -> None:
    why = {(one["title"], one["metric"]): one["reason"] for one in found.missing.to_dict("records")}
    assert why["Retraining", "broken_of_tests"] == "ZeroDivisionError: no number"
    assert why["Retraining", "klom"] == "It needs at least 10 models on each side; got 2. More seeds give more models."
    assert why["Original", "m3"] == "The original has not moved."
    numbers = found.runs.select_dtypes("number")
    for run, row in zip(found.runs.to_dict("records"), numbers.to_dict("records"), strict=True):
        absent = {name for name, value in row.items() if math.isnan(value)}
        assert absent <= json.loads(run["reasons"]).keys()


def test_one_seed_is_told_what_to_bring_in_words(folder: Path, tmp_path: Path) -> None:
    metrics = ["rmia", "lira", "u_lira", "klom", "min_k", "forget_quality"]
    alone = ruler.compare(
        folder / "own.csv", target="sick", methods=["ssd"], metrics=metrics, seeds=1, out=tmp_path, jobs=1
    )
    rows = alone.missing[alone.missing["title"] == "Original"]
    why = dict(zip(rows["metric"], rows["reason"], strict=True))
    assert set(metrics) < why.keys()
    assert not any("_" in why[name] for name in metrics)
    assert (
        why["rmia"]
        == "It needs at least 1 model that never saw the forget records; got 0. More seeds give more models."
    )
    for name, least in {"lira": "2", "u_lira": "2", "klom": "10"}.items():
        assert f"at least {least} models on each side" in why[name]
        assert why[name].endswith("got 0. More seeds give more models.")
    assert why["min_k"] == (
        "It needs how likely each token of the forget records is, which models of this kind do not tell."
    )


def test_u_lira_compares_with_the_same_method_on_originals_of_other_seeds(found) -> None:
    by_method = found.runs.set_index("method")[["lira", "u_lira"]]
    assert by_method["u_lira"].between(0, 1).all()
    original, retrained = by_method.loc["original"], by_method.loc["retrain"]
    assert original["u_lira"].tolist() == original["lira"].tolist()
    assert retrained["u_lira"].tolist() != retrained["lira"].tolist()


def test_the_same_call_again_runs_nothing_and_finds_the_same(found, run) -> None:
    again = run()
    assert (found.summary.n_new, again.summary.n_new) == (15, 0)
    pd.testing.assert_frame_equal(again.table, found.table)


def test_files_hold_the_tables(found) -> None:
    rows = list(csv.DictReader(io.StringIO((found.out / "compare.csv").read_text())))
    assert [float(row["cka"]) for row in rows] == pytest.approx(found.table["cka"].tolist())
    assert "klom (3 runs): It needs" in rows[1]["missing"]
    pd.testing.assert_frame_equal(pd.read_parquet(found.out / "compare.parquet"), found.runs)
    lines = (found.out / "compare.tex").read_text().splitlines()
    assert sum(line.count("&") == 6 for line in lines) == 6
    assert any(line.startswith("$<$script$>$") for line in lines)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]


def test_the_page_stands_alone_and_shows_names_as_text(found) -> None:
    text = (found.out / "compare.html").read_text()
    page = _Page()
    page.feed(text)
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; (epochs=1)" in text
    assert page.tags.count("script") == 2  # the rows of the table, and what sorts them
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert page.tags.count("circle") == 5 + 4 + 2 * 5  # kept, cost without the original, two rankings
    assert "own.csv: none of 3 methods is erased in every run" in text
    assert "ZeroDivisionError: no number" in text


def test_reports_are_saved_linked_and_name_the_users_records(folder: Path) -> None:
    frame = pd.read_csv(folder / "own.csv")
    frame["patient"] = [f"patient {i}" for i in range(len(frame))]
    frame.to_csv(folder / "named.csv", index=False)
    found = ruler.compare(
        folder / "named.csv",
        target="sick",
        ids="patient",
        methods=["fine_tuning"],
        metrics=["cka"],
        seeds=1,
        training={"epochs": 1},
        out=folder / "reported",
        jobs=1,
        reports=True,
    )
    page = (found.out / "compare.html").read_text()
    for run in found.runs.to_dict("records"):
        report = ruler.Report.load(found.out / run["report"])
        assert report.verdict == run["verdict"]
        assert set(report.records["id"]) < set(frame["patient"])
        assert f'href="{run["report"]}/report.html"' in page


def test_a_method_that_fails_is_a_row_with_its_reason(folder: Path) -> None:
    found = ruler.compare(
        folder / "own.csv",
        target="sick",
        methods={"fine_tuning": {}, "eu_k": {"n_layers": 99}},
        metrics=["cka"],
        seeds=1,
        training={"epochs": 1},
        out=folder / "failed",
        jobs=1,
    )
    assert found.runs["verdict"].tolist()[2] == "failed"
    assert "n_layers must be at most" in found.missing.set_index("metric").loc["verdict", "reason"]
    assert "failed" in (folder / "failed" / "compare.html").read_text()
    assert set(found.missing["metric"]) >= {"intervals"}


def test_whole_groups_are_forgotten_in_several_draws(folder: Path) -> None:
    frame = pd.read_csv(folder / "own.csv")
    frame["person"] = np.repeat([f"p{i}" for i in range(40)], 4)
    frame.to_csv(folder / "grouped.csv", index=False)
    found = ruler.compare(
        folder / "grouped.csv",
        target="sick",
        groups="person",
        methods=["retrain"],
        metrics=["linear_probe"],
        seeds=2,
        draws=2,
        training={"epochs": 1},
        out=folder / "grouped",
        jobs=1,
    )
    assert found.runs["draw"].nunique() == 2
    assert (found.runs["n_forget"] % 4 == 0).all()
    row, part = found.table.iloc[1], found.runs[found.runs["method"] == "retrain"]
    error = sum(part.groupby(factor)["m4"].mean().var(ddof=1) / 2 for factor in ("seed", "draw"))
    assert row.m4_high - row.m4 == pytest.approx(12.7062 * math.sqrt(error), rel=1e-5)  # one degree of freedom


def test_images_by_name_are_compared_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def draw(n: int) -> ImageData:
        target = rng.integers(0, 2, n)
        images = rng.integers(0, 120, (n, 8, 8, 1)) + 100 * target[:, None, None, None]
        return ImageData("dots", images.astype(np.uint8), target, ("dark", "bright"), np.arange(n))

    if "dots_of_tests" not in DATASETS:
        parts = ImageSplit(draw(120), draw(60))
        shape = {"image_shape": (8, 8, 1), "n_train": 120, "n_test": 60}
        register_dataset(ImageSet(key="dots_of_tests", title="Dots", read=lambda: parts, **shape))
    found = ruler.compare(
        "dots_of_tests",
        forget="class == bright",
        methods=["retrain", "random_labels"],
        metrics=["cka"],
        seeds=1,
        training={"epochs": 1},
        out=tmp_path,
        jobs=1,
    )
    assert found.summary.failures == {}
    assert found.settings.model == "small_cnn"
    assert found.table["method"].tolist() == ["original", "retrain", "random_labels"]
    with pytest.raises(InputError, match="must be one of class; got 'shape'"):
        ruler.compare("dots_of_tests", forget="shape == round", out=tmp_path, jobs=1)


def test_settings_are_chosen_of_a_grid_and_every_candidate_is_published(folder: Path) -> None:
    found = ruler.compare(
        folder / "own.csv",
        target="sick",
        methods={
            "retrain": {},
            "cf_k": {},
            "gradient_ascent": {"epochs": 2, "learning_rate": [1e-6, 10.0]},
            "eu_k": {"n_layers": [99, 98]},
        },
        choose=True,
        metrics=["cka"],
        seeds=1,
        training={"epochs": 2},
        out=folder / "chosen",
        jobs=1,
    )
    assert found.table["title"].tolist() == ["Original", "Retraining", "CF-k", "Gradient Ascent (epochs=2)", "EU-k"]
    assert found.runs["verdict"].tolist()[-1] == "failed"  # no candidate has so many layers
    choices = found.choices.groupby("title", sort=False)
    assert {title: len(part) for title, part in choices} == {"CF-k": 6, "Gradient Ascent (epochs=2)": 2}
    for _, part in choices:
        assert part["is_chosen"].sum() == 1
        assert part["score"].idxmin() == part["is_chosen"].idxmax()
    ascent = choices.get_group("Gradient Ascent (epochs=2)")
    assert ascent["settings"].tolist() == ["epochs=2, learning_rate=1e-06", "epochs=2, learning_rate=10.0"]
    assert ascent["is_chosen"].tolist() == [True, False]  # the other one breaks the model
    published = pd.read_csv(found.out / "choices.csv")
    assert published["score"].tolist() == pytest.approx(found.choices["score"].tolist())
    assert "epochs=2, learning_rate=1e-06" in (found.out / "compare.html").read_text()
