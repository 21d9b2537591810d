"""Contract suites that every entry of a table passes, ours and those of other packages: one file per kind."""

from collections.abc import Callable


def check_refused(call: Callable[[], object], message: str, kind: type[ValueError] = ValueError) -> None:
    """Assert that a call ends in an error of this kind, whose message holds these words.

    Example:
        >>> check_refused(lambda: int("one"), "invalid literal")
    """
    said = ""
    try:
        call()
    except kind as error:
        said = str(error)
    assert message in said, f"must be refused with a message that holds {message!r}; got {said!r}"
