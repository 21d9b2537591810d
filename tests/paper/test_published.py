import math

import numpy as np
import pytest
import scipy.stats

from ruler.core.errors import InputError
from ruler.paper.published import COLUMNS, TABLES, load_table, parse_printed, published_numbers

METHODS = ["gradient_ascent", "neggrad_plus", "fine_tuning", "scrub"]
FRACTIONS = [0.01, 0.05, 0.1]
ROWS_OF = {  # rows of each dataset, from its source
    "adult": 48842,
    "diabetes130": 101766,
    "breast_cancer": 569,
    "heart_disease": 303,
    "german_credit": 1000,
    "bank_marketing": 45211,
    "wine_quality": 1599,
    "phoneme": 5404,
    "magic": 19020,
    "electricity": 45312,
}
STUDIES = {"primary", "bad-teacher", "oracle-null", "minibatch", "learning-rate", "forget-seeds"}
STUDIES |= {"large-tabular", "images", "clinical", "faces"}


def pick(table, column, **keys):
    frame = load_table(table)
    mask = frame.column == column
    for key, value in keys.items():
        mask &= frame[key] == value
    return frame[mask]


def value(table, column, **keys):
    [number] = pick(table, column, **keys).paper
    return number


@pytest.mark.parametrize(
    ("table", "n_numbers", "total"),
    # counts follow from the printed layouts; the sums of all cells were taken from the paper's source by
    # another program than wrote the files (Table 2: plus rows that stand for several datasets or models)
    [
        (1, 12 * 6, 22.67009),
        (2, 24 * 2, 33433 + 9 * 130 + 2 * (135 + 130) + 266 + 522),
        (3, 12 * 8, 39.212),
        (4, 30 * 5, 75.959),
        (5, 12 * 5, 15.84561),
        (6, 4 * 8, 7.70556),
        (7, 20 * 7, 69.899),
        (8, 20 * 7, 40.4034),
        (9, 30 * 4, 35013.9223),
        (10, 15 * 6, 32.33746),
        (11, 12 * 3, 10.4247),
        (12, 5 * 6, 15.319),
        (13, 2 * 5 * 3 * 2, 14.167),
        (14, 5 * 3 * 2, 12.282),
        ("text", 80, math.nan),
    ],
)
def test_each_table_is_whole(table, n_numbers, total):
    frame = load_table(table)
    assert len(frame) == n_numbers
    assert tuple(frame.columns) == COLUMNS
    assert not frame.duplicated(["row", "column"]).any()
    if not math.isnan(total):
        assert frame.paper.sum() == pytest.approx(total, abs=1e-4)


def test_all_numbers_together():
    numbers = published_numbers()
    assert list(numbers.table.unique()) == list(TABLES)
    assert len(numbers) == sum(len(load_table(table)) for table in TABLES) == 1184
    assert set(numbers.study) == STUDIES
    assert set(numbers.method) == {"", "original", "oracle", "bad_teacher", *METHODS}
    assert set(numbers.forget_fraction.dropna()) == set(FRACTIONS)


def test_not_computed_numbers_are_nan():
    missing = published_numbers().query("paper != paper")
    assert set(missing.table) == {"6"}
    assert sorted(missing.method) == ["fine_tuning", "gradient_ascent", "scrub"]
    assert set(missing.column) == {"m2_p_mixed"}


def test_bounds_are_marked():
    bounds = published_numbers().query("is_bound")
    counts = bounds.groupby(["table", "relation"]).size().to_dict()
    assert counts == {
        ("1", "<"): 2,
        ("5", "<"): 1,
        ("6", "<"): 2,
        ("text", "<"): 13,
        ("text", ">"): 18,
        ("text", ">="): 3,
    }


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_tables_agree_with_each_other(method, fraction):
    keys = {"method": method, "forget_fraction": fraction}
    gap = value(1, "m2_mean", **keys)
    assert gap == value(10, "m2_mean", **keys) == value(5, "m2_mean", baseline="median", **keys)
    assert value(1, "m2_rank_biserial", **keys) == value(5, "m2_rank_biserial", baseline="median", **keys)
    rank = value(10, "m4_mean", **keys)
    assert value(1, "m4_mean", **keys) == pytest.approx(rank, abs=5.1e-4)
    assert value(11, "m4_mean", **keys) == rank
    bad_teacher = value(10, "m4_mean", method="bad_teacher", forget_fraction=fraction)
    assert value(11, "m4_difference", **keys) == pytest.approx(bad_teacher - rank, abs=1.51e-4)
    assert value(3, "mia_mean", **keys) == pytest.approx(pick(4, "mia_mean", **keys).paper.mean(), abs=1.1e-3)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_the_oracles_membership_accuracy_is_the_mean_of_table_4(fraction):
    keys = {"method": "oracle", "forget_fraction": fraction}
    stated = value("text", "mia_mean", **keys)
    assert stated == pytest.approx(pick(4, "mia_mean", **keys).paper.mean(), abs=1.1e-3)


def test_forget_sets_have_the_sizes_of_the_rule():
    sizes = load_table(9).query("column == 'n_forget'")
    assert len(sizes) == 30
    for row in sizes.itertuples():
        n_train = ROWS_OF[row.dataset] - math.ceil(0.2 * ROWS_OF[row.dataset])
        assert row.paper == max(10, math.floor(row.forget_fraction * n_train)), row.row


def test_counts_in_the_text_follow_from_the_tables():
    table_1 = load_table(1)
    assert (table_1[table_1.column == "m2_p_mixed"].paper < 0.05).sum() == value("text", "m2_n_significant_mixed")
    assert (table_1[table_1.column == "m2_mean"].paper < 0).sum() == value("text", "m2_n_negative_conditions")
    assert (table_1[table_1.column == "m4_mean"].paper > 0.5).sum() == value("text", "m4_n_above_null_conditions")
    assert (table_1[table_1.column == "m4_p_mixed"].paper < 0.05).sum() == value("text", "m4_n_significant_mixed")
    mean_baseline = load_table(5).query("baseline == 'mean'")
    p_values = mean_baseline[mean_baseline.column == "m2_p_wilcoxon"].paper
    assert (p_values < 0.05).sum() == value("text", "m2_n_significant_wilcoxon", baseline="mean")
    gaps = mean_baseline[mean_baseline.column == "m2_mean"].paper
    assert (gaps > 0).sum() == value("text", "m2_n_positive_conditions", baseline="mean")
    signs = pick(9, "m2_n_negative")
    assert (signs.paper == signs.out_of).sum() == value("text", "m2_n_cells_all_negative")


def test_means_and_ranges_of_section_5_5_follow_from_the_tables():
    for table, study in ((12, "large-tabular"), (14, "faces")):
        for row in pick("text", "m4_mean", study=study).itertuples():
            keys = {"dataset": row.dataset, "architecture": row.architecture, "method": row.method}
            printed = value(table, "m4_mean", forget_fraction=row.forget_fraction, **keys)
            assert row.paper == pytest.approx(printed, abs=0.0051)
    for method in ("neggrad_plus", "scrub"):
        ranks = pick(13, "m4_mean", method=method, architecture="resnet18").paper
        keys = {"study": "images", "method": method}
        assert value("text", "m4_lowest", **keys) == pytest.approx(ranks.min(), abs=0.0051)
        assert value("text", "m4_highest", **keys) == pytest.approx(ranks.max(), abs=0.0051)
    left = load_table(14).query("column == 'm4_mean' and method in ['gradient_ascent', 'fine_tuning']").paper
    assert value("text", "m4_lowest", study="faces") == pytest.approx(left.min(), abs=0.0051)
    assert value("text", "m4_highest", study="faces") == pytest.approx(left.max(), abs=0.0051)


def test_mean_baseline_shift_follows_from_table_5():
    for row in pick("text", "m2_baseline_shift").itertuples():
        keys = {"method": row.method, "forget_fraction": row.forget_fraction}
        shift = value(5, "m2_mean", baseline="mean", **keys) - value(5, "m2_mean", baseline="median", **keys)
        assert row.paper == pytest.approx(shift, abs=6e-5)


@pytest.mark.parametrize("table", [7, 8])
def test_holds_follow_from_the_signs(table):
    frame = load_table(table)
    for row in frame[frame.column == "n_holds"].itertuples():
        cells = frame[(frame.dataset == row.dataset) & (frame.method == row.method)]
        gaps = cells[cells.column == "m2_mean"].sort_values("learning_rate").paper.to_numpy()
        ranks = cells[cells.column == "m4_mean"].sort_values("learning_rate").paper.to_numpy()
        assert len(gaps) == len(ranks) == row.out_of == 3
        # the paper prints -0.0000: the sign is kept in the float
        assert (np.signbit(gaps) & (ranks > 0.5)).sum() == row.paper, row.row


@pytest.mark.parametrize("metric", ["m2", "m4"])
def test_table_10_pairs_effect_size_and_p_value(metric):
    effects = pick(10, f"{metric}_rank_biserial_datasets")
    assert len(effects) == 15
    for row in effects.itertuples():
        statistic = round((1 - row.paper) * 110 / 4)
        values = np.arange(1.0, 11.0)
        for rank in range(10, 0, -1):
            if rank <= statistic:
                values[rank - 1] *= -1
                statistic -= rank
        expected = scipy.stats.wilcoxon(values).pvalue
        keys = {"method": row.method, "forget_fraction": row.forget_fraction}
        assert value(10, f"{metric}_p_wilcoxon_datasets", **keys) == pytest.approx(expected, abs=5.1e-4), row.row


@pytest.mark.parametrize(
    ("table", "column", "keys", "expected"),
    [
        (1, "m2_mean", {"method": "neggrad_plus", "forget_fraction": 0.01}, -0.0047),
        (3, "test_accuracy_sd", {"method": "scrub", "forget_fraction": 0.1}, 0.067),
        (4, "mia_mean", {"dataset": "german_credit", "method": "oracle", "forget_fraction": 0.01}, 0.7),
        (6, "m4_rank_biserial", {"method": "neggrad_plus"}, 1.0),
        (
            7,
            "m2_mean",
            {"dataset": "heart_disease", "method": "neggrad_plus", "learning_rate": 1e-3},
            -0.0851,
        ),
        (8, "m4_mean", {"dataset": "magic", "method": "scrub", "learning_rate": 5e-4}, 0.486),
        (9, "m4_seed_sd", {"dataset": "wine_quality", "forget_fraction": 0.01}, 0.112),
        (
            12,
            "m4_mean",
            {"dataset": "higgs", "architecture": "ft_transformer", "method": "neggrad_plus"},
            0.602,
        ),
        (13, "m4_sd", {"dataset": "cifar100", "architecture": "resnet18", "method": "neggrad_plus"}, 0.1716),
        (14, "m4_mean", {"method": "original", "forget_fraction": 0.01}, 0.941),
        ("text", "m4_mean", {"study": "clinical", "forget_fraction": 0.05}, 0.521),
        ("text", "different_seed_oracle_similarity", {}, 0.431),
    ],
)
def test_single_cells(table, column, keys, expected):
    assert value(table, column, **keys) == expected


def test_printed_digits_are_kept():
    assert set(pick(1, "m2_mean").decimals) == {5}
    assert parse_printed("+0.00640").decimals == 5
    assert parse_printed("~30000").relation == "~"
    assert not parse_printed("~30000").is_bound
    assert parse_printed(">=0.97").is_bound


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="table must be 1 to 14 or 'text'; got 15"):
        load_table(15)
    with pytest.raises(InputError, match="a published cell must be a printed number; got '0,5'"):
        parse_printed("0,5")
