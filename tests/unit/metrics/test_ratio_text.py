"""A ratio reads the same in every report."""

import pytest

from syncpoint.metrics.ratio_text import ratio_text


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (None, "–"),
        (0, "0"),
        (0.04, "0.0×"),
        (1.25, "1.2×"),
        (99.94, "99.9×"),
        (99.96, "100×"),
        (612.4, "612×"),
        (16619.2, "16,619×"),
        (999_999.6, "1e6×"),
        (2.4e7, "2e7×"),
        (3e12, "3e12×"),
        (float("inf"), "∞×"),
    ],
)
def test_a_ratio_has_as_many_digits_as_can_be_read_at_a_glance(ratio, said):
    assert ratio_text(ratio) == said
