"""Every form of inputs becomes the same thing, and what does not fit says why."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from syncpoint.errors import CaptureError, FormatError, InputError
from syncpoint.run.model import OpKey, Role, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import as_inputs, read_inputs
from syncpoint.runtimes.inputs.shapes import InputShape, parse_shape
from syncpoint.runtimes.protocol import Inputs, InputSpec

pytestmark = pytest.mark.usefixtures("in_folder")

X = np.arange(6, dtype=np.float32).reshape(2, 3)
IDS = np.array([[1, 2]], np.int64)


def only(source, **more) -> Inputs:
    found = read_inputs(source, **more)
    assert len(found) == 1
    return found[0]


def test_npz_by_name(in_folder):
    np.savez("a.npz", x=X, ids=IDS)
    found = only("a.npz").kwargs
    assert list(found) == ["x", "ids"]
    np.testing.assert_array_equal(found["x"], X)
    assert found["ids"].dtype == np.int64


def test_compressed_npz_and_fortran_order(in_folder):
    np.savez_compressed("a.npz", x=np.asfortranarray(X))
    np.testing.assert_array_equal(only("a.npz").kwargs["x"], X)


def test_npy_by_position(in_folder):
    np.save("a.npy", X)
    np.testing.assert_array_equal(only("a.npy").args[0], X)


def test_safetensors_with_bf16(in_folder):
    save_file({"x": X.astype(ml_dtypes.bfloat16), "ids": IDS}, "a.safetensors")
    found = only("a.safetensors").kwargs
    assert found["x"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found["ids"], IDS)


def test_a_folder_and_a_glob_are_several_samples(in_folder):
    (in_folder / "many").mkdir()
    for i in range(3):
        np.save(f"many/s{i}.npy", X + i)
    (in_folder / "many" / "readme.txt").write_text("no sample")
    for source in ("many", "many/*.npy", in_folder / "many"):
        assert [s.args[0][0, 0] for s in read_inputs(source)] == [0, 1, 2]


def test_a_run_gives_what_it_was_fed(in_folder):
    with RunWriter("a.run", RunInfo()) as writer:
        recorder = Recorder(writer)
        named = {"x": X, 'extra["mask"]': IDS, "states[0]": X, "states[1]": X + 1}
        for i, (name, value) in enumerate(named.items()):
            recorder.tensor(OpKey(f"in{i}"), value, role=Role.MODEL_INPUT, name=name)
    found = only("a.run").kwargs
    np.testing.assert_array_equal(found["extra"]["mask"], IDS)
    np.testing.assert_array_equal(found["states"][1], X + 1)
    assert list(found) == ["x", "extra", "states"]


def test_a_function_may_return_any_form(in_folder):
    (in_folder / "feeds.py").write_text(
        "import numpy as np\n"
        "x = np.ones(2)\n"
        "def one(): return x\n"
        "def args(): return x, x\n"
        "def both(): return (x,), {'k': x}\n"
        "def named(): return {'k': x}\n"
        "def bad(): raise KeyError('k')\n"
        "def odd(): return 3\n"
    )
    assert len(only("feeds.py:one").args) == 1
    assert len(only("feeds:args").args) == 2
    assert list(only("feeds.py:both").kwargs) == ["k"]
    assert list(only("feeds.py:named").kwargs) == ["k"]
    assert len(only("feeds.py:x").args) == 1
    with pytest.raises(
        CaptureError, match=r"feeds.py:bad returned no inputs, because it raised KeyErr"
    ):
        read_inputs("feeds.py:bad")
    with pytest.raises(InputError, match="inputs cannot be a int"):
        read_inputs("feeds.py:odd")


def test_made_up_values():
    shapes = dict([parse_shape("x=2,3"), parse_shape("ids=1,4:i64"), parse_shape("m=2:bool")])
    first, again = (only("random:7", shapes=shapes).kwargs for _ in range(2))
    other = only("random", shapes=shapes).kwargs
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])
    assert first["x"].dtype == np.float32
    assert first["ids"].dtype == np.int64
    assert first["m"].dtype == bool
    assert only("ones", shapes={"x": (2,)}).kwargs["x"].tolist() == [1.0, 1.0]
    assert (
        only("zeros", shapes={"x": InputShape((2,), "bf16")}).kwargs["x"].dtype
        == ml_dtypes.bfloat16
    )


def test_the_model_may_say_the_shape():
    declared = [InputSpec("x", (1, 2), "f16"), InputSpec("m", None, required=False)]
    found = only("zeros", declared=declared).kwargs
    assert found["x"].shape == (1, 2)
    assert found["x"].dtype == np.float16
    with pytest.raises(InputError, match="no shape for y; add --shape y=1,3,224,224"):
        read_inputs("random", {}, [InputSpec("y")])
    open_axis = InputSpec("y", (-1, 32))
    declares = r"no shape for y \(the model declares \?x32\); add --shape y=1,32"
    with pytest.raises(InputError, match=declares):
        read_inputs("random", {}, [open_axis])
    nameless = read_inputs("random", dict([parse_shape("2,2")]), [InputSpec("y")])[0]
    assert nameless.kwargs["y"].shape == (2, 2)


def test_live_objects():
    assert as_inputs(X).args[0] is X
    assert as_inputs([X, X]).args == (X, X)
    assert as_inputs({"x": X}).kwargs == {"x": X}
    assert as_inputs(((X,), {"k": 1})).kwargs == {"k": 1}
    ready = Inputs((X,))
    assert read_inputs([ready, ready]) == [ready, ready]
    with pytest.raises(InputError, match="keys of inputs by name"):
        as_inputs({1: X})


def test_hostile_files_are_refused_in_one_line(in_folder):
    np.save("pickled.npy", np.array([{}], object), allow_pickle=True)
    np.save("a.npy", X)
    raw = (in_folder / "a.npy").read_bytes()
    (in_folder / "short.npy").write_bytes(raw[:-4])
    (in_folder / "claims.npy").write_bytes(raw.replace(b"(2, 3), ", b"(92, 93)"))
    (in_folder / "text.npz").write_text("not a zip")
    (in_folder / "long.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    header = b'{"x":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'
    (in_folder / "outside.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (in_folder / "empty.safetensors").write_bytes(b"")
    for name in ("pickled.npy", "short.npy", "claims.npy", "text.npz"):
        with pytest.raises(FormatError):
            read_inputs(name)
    for name in ("long.safetensors", "outside.safetensors", "empty.safetensors"):
        with pytest.raises(FormatError):
            read_inputs(name)
    with pytest.raises(InputError, match="no such file"):
        read_inputs("gone.npz")
    (in_folder / "bare").mkdir()
    with pytest.raises(InputError, match=r"no input files .* in 'bare'"):
        read_inputs("bare")
