"""Options of a runtime are parsed by their type, and wrong ones are refused."""

import pytest

from syncpoint.errors import InputError
from syncpoint.runtimes.options import parse_options
from syncpoint.runtimes.protocol import Option


class WithOptions:
    name = "elsewhere"

    def options(self):
        return (
            Option("level", int, 3, "how much"),
            Option("fast", bool, False, "in a hurry"),
            Option("rate", float, 0.5, "share"),
            Option("form", str, "plain", "which", ("plain", "fancy")),
        )


def test_options_are_parsed_by_their_type():
    parsed = parse_options(WithOptions(), {"level": "7", "fast": "yes", "rate": 1, "form": "fancy"})
    assert parsed == {"level": 7, "fast": True, "rate": 1.0, "form": "fancy"}
    assert parse_options(WithOptions(), {})["level"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": "1"}, "found 'speed'; these are known: level, fast, rate, form"),
        ({"level": "much"}, "a value of type int for the option level; found 'much'"),
        ({"fast": "perhaps"}, "for the option fast; found 'perhaps'"),
        ({"form": "odd"}, "one of 'plain', 'fancy' for the option form; found 'odd'"),
        ({"level": [1]}, "for the option level"),
    ],
)
def test_a_wrong_option_says_what_is_right(options, message):
    with pytest.raises(InputError, match=message):
        parse_options(WithOptions(), options)
