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
        ({"speed": "1"}, "has no option 'speed'; use one of: level, fast, rate, form"),
        ({"level": "much"}, "the option level must be a value of type int, not 'much'"),
        ({"fast": "perhaps"}, "the option fast must be .*, not 'perhaps'"),
        ({"form": "odd"}, "the option form must be one of 'plain', 'fancy', not 'odd'"),
        ({"level": [1]}, r"the option level must be a value of type int, not \[1\]"),
    ],
)
def test_a_wrong_option_says_what_is_right(options, message):
    with pytest.raises(InputError, match=message):
        parse_options(WithOptions(), options)
