from ruler.data.tables.sets import TABULAR_SETS

PROTOCOL = {
    "adult": ("Adult Income", 1590, 48842, 14),
    "diabetes130": ("Diabetes 130-US", 4541, 101766, 49),
    "breast_cancer": ("Breast Cancer", None, 569, 30),
    "heart_disease": ("Heart Disease", 49, 303, 13),
    "german_credit": ("German Credit", 31, 1000, 20),
    "bank_marketing": ("Bank Marketing", 1461, 45211, 16),
    "wine_quality": ("Wine Quality", 40691, 1599, 11),
    "phoneme": ("Phoneme", 1489, 5404, 5),
    "magic": ("Magic Telescope", 1120, 19020, 10),
    "electricity": ("Electricity", 151, 45312, 8),
}


def test_registry_holds_the_ten_sets_of_the_paper():
    found = {key: (s.title, s.openml_id, s.n_rows, s.n_features) for key, s in TABULAR_SETS.items()}
    assert found == PROTOCOL


def test_every_entry_carries_its_key_and_a_full_hash():
    assert all(key == entry.key for key, entry in TABULAR_SETS.items())
    assert len({entry.content_hash for entry in TABULAR_SETS.values()}) == 10
    assert all(len(bytes.fromhex(entry.content_hash)) == 32 for entry in TABULAR_SETS.values())
