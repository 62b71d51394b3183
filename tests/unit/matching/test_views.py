"""Views can be undone, unless they leave something out."""

import numpy as np
import pytest

from syncpoint.matching.views import View


@pytest.mark.parametrize(
    "text",
    [
        "",
        "transpose(0,3,1,2)",
        "transpose()",
        "reshape(6,-1)",
        "flip(1,2)",
        "squeeze() transpose(1,0,2)",
        "reshape(2,3,2,2,5) transpose(0,1,4,2,3) reshape(2,15,4)",
    ],
)
def test_undoing_gives_the_array_again(text):
    array = np.arange(120).reshape(2, 3, 4, 5) if text[:3] != "squ" else np.arange(24.0)
    array = array.reshape(2, 1, 3, 4) if array.ndim == 1 else array
    viewed = View(text).apply(array)
    undone = View(text).undo(viewed, array.shape)
    assert undone.shape == array.shape
    assert (undone == array).all()


def test_axes_of_length_one_come_and_go():
    assert View("").undo(np.zeros((1, 3, 1)), (3,)).shape == (3,)


def test_a_slice_cannot_be_undone_and_a_misfit_is_an_error():
    assert View("slice(0,0,1)").undo(np.zeros((1, 3)), (2, 3)) is None
    with pytest.raises(ValueError):
        View("transpose(0,2,1)").undo(np.zeros((2, 3)), (2, 3))
