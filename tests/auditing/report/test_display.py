import pandas as pd

from ruler.auditing.report.display import choose_digits, format_interval, format_number, format_p
from ruler.core.text import show_text

NAN = float("nan")


def test_display():
    assert show_text("caf\u00e9 \U0001f469\u200d\U0001f52c") == "caf\u00e9 \U0001f469\u200d\U0001f52c"
    assert show_text("a\u200bb\u202e\ud800\x07") == "a\\u{200b}b\\u{202e}\\u{d800}\\u{7}"
    assert show_text("two\nlines") == "two\nlines"
    assert format_number(-0.00001) == "0.0000"
    assert format_number(0.5, 2, is_signed=True) == "+0.50"
    assert format_number(None) == format_p(None) == format_number(NAN) == "\u2013"
    assert format_interval((NAN, 1.0)) == format_interval(None) == ""
    assert choose_digits(pd.Series([1.0, 1.0])) == 4
    assert choose_digits([NAN]) == 4
