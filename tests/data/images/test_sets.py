from ruler.data import FACE_SETS, IMAGE_SETS, LARGE_SETS, PUBLISHED_SETS, TABULAR_SETS, TEXT_SETS


def test_sizes_are_those_of_the_protocol():
    sizes = {key: (s.n_train, s.n_test, s.image_shape, len(s.classes)) for key, s in IMAGE_SETS.items()}
    shape = (32, 32, 3)
    assert sizes == {
        "cifar10": (10000, 2000, shape, 10),
        "cifar100": (10000, 2000, shape, 100),
        "svhn": (10000, 2000, shape, 10),
    }
    lfw = FACE_SETS["lfw"]
    assert (lfw.n_images, lfw.n_people, lfw.image_shape, lfw.classes) == (4324, 158, (62, 47, 3), ("female", "male"))
    assert len(set(IMAGE_SETS["cifar100"].classes)) == 100


def test_every_set_stands_once_under_its_key_with_a_full_hash():
    registries = (TABULAR_SETS, LARGE_SETS, IMAGE_SETS, FACE_SETS, TEXT_SETS)
    entries = [entry for registry in registries for entry in registry.values()]
    assert [entry.key for entry in entries] == list(PUBLISHED_SETS)
    assert all(len(bytes.fromhex(entry.content_hash)) == 32 for entry in entries)
    assert len({entry.content_hash for entry in entries}) == len(entries) == 17


def test_a_set_that_is_not_the_papers_says_so():
    assert "51,233 of the paper's 100,000" in LARGE_SETS["higgs"].title
    assert "not the official one" in IMAGE_SETS["cifar100"].note
    assert "cropped again" in IMAGE_SETS["svhn"].note
    assert "2,357 are distinct" in TEXT_SETS["mtsamples"].note


def test_downloads_that_differ_from_ours_are_named():
    differing = {key for key, entry in PUBLISHED_SETS.items() if entry.home_note}
    assert differing == {"higgs", "cifar100", "svhn", "lfw"}
