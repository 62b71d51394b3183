"""Shapes as `--shape` gives them."""

import pytest

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.shapes import parse_shape


@pytest.mark.parametrize("text", ["x=1,a", "x=-1", "x=1:f99"])
def test_a_wrong_shape(text):
    with pytest.raises(InputError):
        parse_shape(text)
