"""Names of axes: what is understood, what is refused."""

import pytest

from syncpoint.errors import InputError
from syncpoint.run.dims import Axis, Dims


def test_axes_and_the_groups_that_shard_them():
    found = Dims.parse("  b s  h(tp) d( dp , cp ) ")
    assert found.axes == (Axis("b"), Axis("s"), Axis("h", ("tp",)), Axis("d", ("dp", "cp")))
    assert str(found) == "b s h(tp) d(dp,cp)"
    assert Dims.parse(str(found)) == found
    found.check((2, 3, 4, 5))


def test_axes_of_length_one_need_no_name():
    found = Dims.parse("1 s 1")
    found.check((1, 7, 1))
    with pytest.raises(InputError, match="axis 0 has length 1"):
        found.check((2, 7, 1))


def test_a_scalar_has_no_axes():
    Dims.parse("").check(())
    with pytest.raises(InputError, match=r"but the shape \[\] has 0"):
        Dims.parse("b").check(())


@pytest.mark.parametrize(
    "text",
    ["(b s) h", "b s h(", "b s h()", "b s h(tp", "b, s", "b ... d", "2 s", "b(t p)", "b(tp)(dp)",
     "b(tp)s", "b -1", "b\0s", 3, None],
)  # fmt: skip
def test_what_is_no_list_of_axes_is_refused_in_one_line(text):
    with pytest.raises(InputError) as raised:
        Dims.parse(text)
    assert "\n" not in str(raised.value)


def test_names_and_groups_occur_once():
    with pytest.raises(InputError, match="axis b occurs twice"):
        Dims.parse("b s b")
    with pytest.raises(InputError, match="group of ranks tp occurs twice"):
        Dims.parse("b(tp) s(tp)")


def test_the_number_of_axes_is_that_of_the_tensor():
    with pytest.raises(InputError, match=r"'b s' names 2 axes, but the shape \[2, 3, 4\] has 3"):
        Dims.parse("b s").check((2, 3, 4))
