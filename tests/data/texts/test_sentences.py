import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.data import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "This is the first sentence. This is the second one!",
            ["This is the first sentence.", "This is the second one!"],
        ),
        ("It ended there.,HEENT:  The throat was sore.", ["HEENT: The throat was sore."]),
        ("a dose of 2.5 mg was given e.g. in the morning", ["a dose of 2.5 mg was given e.g. in the morning"]),
        (
            "A heading without a stop\n\nand a paragraph of its own",
            ["A heading without a stop", "and a paragraph of its own"],
        ),
        ("a line that is\nwrapped in the middle", ["a line that is wrapped in the middle"]),
        ("x" * 19, []),
        ("x" * 20, ["x" * 20]),
        ("x" * 300, ["x" * 300]),
        ("x" * 301, []),
        ("", []),
    ],
)
def test_rule(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB1 .,!?\n\t('\"", max_size=400))
def test_sentences_are_within_the_limits_and_stand_in_the_text(text):
    bare = "".join(text.split())
    position = 0
    for sentence in split_sentences(text):
        assert 20 <= len(sentence) <= 300
        assert sentence == " ".join(sentence.split()).strip(" ,")
        position = bare.index("".join(sentence.split()), position)
        assert split_sentences(sentence) == [sentence]
