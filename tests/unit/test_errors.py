"""Errors are one line: the problem and its cure; and each carries its exit code."""

import pickle

import pytest

from syncpoint import errors

ALL = [
    errors.InputError("x.png is not a run", cure="name a folder ending in .run"),
    errors.FormatError("schema 7\nand a newline is unknown", cure="upgrade syncpoint"),
    errors.MissingExtra("torch", "torch", "capturing an nn.Module"),
    errors.CaptureError("the model failed: RuntimeError: boom"),
    errors.Unsupported("an address cannot be opened", cure="download it first"),
    errors.InputError("x.run already exists", cure="add --force or choose another name"),
    errors.WriteError("x.csv", "disk full", "free some space"),
]


@pytest.mark.parametrize("error", ALL, ids=lambda e: type(e).__name__)
def test_the_message_is_the_problem_and_its_cure_in_one_line(error):
    text = str(error)
    assert "\n" not in text
    assert text.startswith(error.detail)
    assert text.endswith(error.cure)


@pytest.mark.parametrize("error", ALL, ids=lambda e: type(e).__name__)
def test_every_error_can_be_sent_to_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.cure == error.cure


@pytest.mark.parametrize("error", ALL, ids=lambda e: type(e).__name__)
def test_every_error_says_that_the_command_could_not_do_its_work(error):
    assert error.exit_code == errors.EXIT_FAILED == 2


def test_missing_extra_names_the_command_that_installs_it():
    assert "pip install 'syncpoint[torch]'" in str(errors.MissingExtra("torch", "torch", "x"))


def test_a_missing_shape_has_its_example_also_where_the_name_has_spaces():
    error = errors.NoShape("no shape for my input", "my input=1,3")
    assert error.example == "my input=1,3" and error.cure == "add --shape my input=1,3"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
