"""Relations between two arrays say what a person can check."""

import numpy as np
import pytest

from syncpoint.diagnosis.weights.relations import find_relation

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 64), (1, 8, 8), (1, 1, 64)])
@pytest.mark.parametrize("count", [1, 16, 64])
def test_an_axis_of_length_one_has_no_slices_to_speak_of(shape, count):
    reference = RNG.standard_normal(shape)
    target = reference.copy()
    target.reshape(-1)[:count] = RNG.standard_normal(count)
    relation = find_relation(reference, target, 1e-6)
    assert (relation is None) is (count == 64)
    assert relation is None or "1 of 1" not in relation.words


def test_an_element_of_a_single_row_is_told_by_its_column():
    reference = RNG.standard_normal((1, 64))
    target = reference.copy()
    target[0, 7] += 1
    relation = find_relation(reference, target, 1e-6)
    assert (relation.kind, relation.words) == (
        "changed",
        "differs in 1 of 64 slices of axis 1 (index 7); the rest is equal",
    )
