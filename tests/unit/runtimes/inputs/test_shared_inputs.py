"""Of inputs by name, each of two models takes those that it declares; what neither takes is
refused."""

import pytest

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.shared_inputs import SharedInputs
from syncpoint.runtimes.protocol import Inputs, InputSpec

REFERENCE = [InputSpec("x"), InputSpec("rate", required=False)]
TARGET = [InputSpec("x"), InputSpec("state")]


class OpenEnded:
    def takes_any_name(self):
        return True


def names(shared, specs, sample, session=None):
    samples, notes = shared.select([sample], session, specs, "model")
    return sorted(samples[0].kwargs), notes


def test_each_side_takes_its_own_inputs_and_a_note_names_the_others():
    shared = SharedInputs()
    both = Inputs(kwargs={"x": 1, "rate": 2, "state": 3})
    assert names(shared, REFERENCE, both) == (
        ["rate", "x"],
        ["state is an input of the other side only"],
    )
    assert names(shared, TARGET, both) == (
        ["state", "x"],
        ["rate is an input of the other side only"],
    )


def test_a_name_that_neither_side_takes_is_refused():
    shared = SharedInputs()
    mistyped = Inputs(kwargs={"x": 1, "raet": 2, "state": 3})
    names(shared, REFERENCE, mistyped)
    with pytest.raises(
        InputError, match="neither the target nor the reference takes the input raet"
    ):
        names(shared, TARGET, mistyped)


def test_the_names_of_a_recorded_side_are_taken():
    assert names(SharedInputs({"x", "rate"}), TARGET, Inputs(kwargs={"x": 1, "state": 3})) == (
        ["state", "x"],
        [],
    )
    with pytest.raises(InputError, match="takes the input old"):
        names(SharedInputs({"x"}), TARGET, Inputs(kwargs={"x": 1, "state": 3, "old": 4}))


@pytest.mark.parametrize(
    "sample",
    [
        Inputs(kwargs={"a": 1, "b": 2}),  # bound in order
        Inputs((1,), {"other": 2}),
        Inputs(kwargs={"x": 1, "other": 2}),  # state is missing
        Inputs(kwargs={"x": 1, "state": 2, "more": {"ids": 3}}),
    ],
)
def test_inputs_that_are_bound_otherwise_or_do_not_fit_stay_as_they_are(sample):
    assert names(SharedInputs(), TARGET, sample) == (sorted(sample.kwargs), [])


def test_a_model_that_takes_any_name_gets_all_of_them():
    shared = SharedInputs()
    sample = Inputs(kwargs={"x": 1, "state": 2, "rate": 3})
    assert names(shared, REFERENCE, sample, OpenEnded())[0] == ["rate", "state", "x"]
    assert names(shared, TARGET, sample)[0] == ["state", "x"]
