"""A text -> its sentences, by one simple rule."""

import re

SHORTEST, LONGEST = 20, 300

# After a full stop, question or exclamation mark, if a capital, a digit or an opening mark follows; the commas
# between are what is left of line breaks in MTSamples. And at every empty line.
_BOUNDARY = re.compile(r"""(?<=[.!?])[\s,]+(?=[A-Z0-9"'(])|\n\s*\n""")


def split_sentences(text: str) -> list[str]:
    """What sentences does a text hold, of 20 to 300 characters?

    Cut after ``.``, ``!`` or ``?`` where whitespace or commas and then a capital, a digit, a quote or a bracket
    follow, and at empty lines. Runs of whitespace become one blank, commas and blanks at the ends go, and pieces
    shorter than 20 or longer than 300 characters are left out. The same text always gives the same sentences.

    Args:
        text: Any text.

    Returns:
        The sentences in their order.

    Example:
        >>> split_sentences("She has used Allegra also.,PLAN:,1.  She will try Zyrtec instead.  Really?")
        ['She has used Allegra also.', 'She will try Zyrtec instead.']
    """
    pieces = (" ".join(piece.split()).strip(" ,") for piece in _BOUNDARY.split(text))
    return [piece for piece in pieces if SHORTEST <= len(piece) <= LONGEST]
