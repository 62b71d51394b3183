"""What a user names in code is loaded, or the error says what is wrong in one line."""

import pytest

from syncpoint.errors import CaptureError, InputError
from syncpoint.runtimes.import_path import is_import_path, load_object

pytestmark = pytest.mark.usefixtures("in_folder")


def test_a_file_and_a_module_of_the_current_folder(in_folder):
    (in_folder / "nets_here.py").write_text("class Holder:\n    value = 7\n")
    assert load_object("nets_here.py:Holder.value") == 7
    assert load_object("nets_here:Holder") is load_object("nets_here.py:Holder")
    assert load_object("os.path:join")


def test_a_file_may_import_its_neighbours_and_have_a_taken_name(in_folder):
    (in_folder / "sub").mkdir()
    (in_folder / "sub" / "neighbour_of_json.py").write_text("value = 5\n")
    (in_folder / "sub" / "json.py").write_text("from neighbour_of_json import value\n")
    assert load_object("sub/json.py:value") == 5
    import json

    assert json.loads("1") == 1


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("gone.py:x", InputError, "no such file: 'gone.py'; check the path"),
        ("no_such_module_x:y", InputError, "no module named 'no_such_module_x'"),
        (
            "good.py:modle",
            InputError,
            "has no attribute 'modle'; use one of these similar names: model",
        ),
        ("good.py:zzz", InputError, "has no attribute 'zzz'; use one of: model"),
        ("raises.py:x", CaptureError, r"ZeroDivisionError: division by zero \(at .*raises.py:2\)"),
        ("exits.py:x", CaptureError, "SystemExit: 3"),
        ("wants.py:x", CaptureError, "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("nothing", InputError, "package.module:attribute or file.py:attribute"),
    ],
)
def test_what_cannot_be_loaded(in_folder, text, error, message):
    (in_folder / "good.py").write_text("model = 1\n")
    (in_folder / "raises.py").write_text("\nx = 1 / 0\n")
    (in_folder / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (in_folder / "wants.py").write_text("import not_there_at_all\n")
    with pytest.raises(error, match=message) as raised:
        load_object(text)
    assert "\n" not in str(raised.value)


def test_paths_are_not_taken_for_references():
    assert is_import_path("a.b:c")
    assert is_import_path("dir/a.py:c.d")
    for other in ("model.onnx", "dir/model:x", "random:3", 3, "a:", ":b", "a b:c"):
        assert not is_import_path(other)
