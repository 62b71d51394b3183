"""What counts as proven by computing."""

from math import inf, nan

import pytest

from syncpoint.diagnosis.experiments.proof import Proof


@pytest.mark.parametrize(
    ("before", "after", "size"), [(inf, inf, inf), (inf, 1.0, inf), (1.0, 0.0, nan)]
)
def test_what_is_not_finite_proves_nothing(before, after, size):
    found = Proof(before=before, after=after, allowed=0.0, size=size)
    assert found.exact is False and found.explains is False
