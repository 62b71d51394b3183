"""What a sum in a narrow type weighs: by what the other ops are, and what the output shows."""

from types import SimpleNamespace

import pytest

from syncpoint.diagnosis.findings_by_cause.precision import _weight
from syncpoint.metrics.verdict import Verdict


def case(output, presets):
    rows = [SimpleNamespace(introduced=SimpleNamespace(preset=preset)) for preset in presets]
    outputs = [SimpleNamespace(verdict=output)]
    result = SimpleNamespace(outputs=outputs)
    return SimpleNamespace(result=result, computed=rows, is_off=output is not Verdict.CLOSE)


@pytest.mark.parametrize(
    ("output", "presets", "level"),
    [
        (Verdict.CLOSE, ["f16"] * 5, "note"),
        (Verdict.MODERATE, ["f16"] * 5, "note"),
        (Verdict.LARGE, ["f16"] * 5, "cause"),
        # One op in 16 bits among others that have more.
        (Verdict.CLOSE, ["f32"] * 5 + ["f16"], "suspect"),
        (Verdict.MODERATE, ["f32"] * 5 + ["f16"], "cause"),
    ],
)
def test_the_level_of_a_narrow_sum(output, presets, level):
    assert _weight(case(output, presets), SimpleNamespace(dtype="f16")) == level
