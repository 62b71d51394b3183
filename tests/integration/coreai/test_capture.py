"""The runtime "coreai": what is captured is what Core AI computes, all of it, in its order."""

import asyncio
import copy
import re
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray

import syncpoint as sp
from models.coreai_files import NETS, SLOTS, WIDTH, aimodel, cached_steps, in_type, program, save
from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Edge, Part, Role, TensorKey
from syncpoint.runtimes.protocol import Inputs

FORMS = [
    ("cnn", "f32"),
    ("resnet", "f32"),
    ("transformer", "f32"),
    ("gpt", "f32"),
    ("pieces", "f32"),
    ("attention", "f32"),
    ("cnn", "f16"),
    ("transformer", "bf16"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("coreai")


@cache
def captured(folder, net, form="f32"):
    return sp.capture(str(aimodel(folder, net, form)), in_type(net, form)[1])


def plain_run(path, given):
    """What anyone gets who runs the asset."""

    async def run():
        async with AIModelAsset.load(path).executable() as model:
            function = model.load_function("main")
            names = function.desc.input_names
            fed = {n: NDArray(_narrow(v)) for n, v in zip(names, given, strict=True)}
            found = await function(fed)
            return [found[n].numpy() for n in function.desc.output_names]

    return asyncio.run(run())


def _narrow(tensor):
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.int().numpy() if tensor.dtype == torch.int64 else tensor.numpy()


def values(run, edge, part=Part()):  # noqa: B008
    whole = Part() if edge.role is Role.PARAMETER else part
    tensor = run.tensor(TensorKey(edge.op, edge.role, edge.index, whole))
    return np.asarray(run.values(tensor))


def outputs(run, role=Role.OUTPUT):
    return [t for t in run.tensors if t.key.role is role]


@pytest.mark.parametrize(("net", "form"), FORMS)
def test_captured_outputs_have_the_bits_of_a_plain_run(folder, net, form):
    given = in_type(net, form)[1]
    path = aimodel(folder, net, form)
    run = captured(folder, net, form)
    assert run.info.observer.equal, run.info.observer.detail
    assert run.info.runtime == "coreai"
    assert run.info.device == "CPU interpreter"
    assert any("Neural Engine" in note for note in run.info.notes)
    assert run.info.precision.split("+")[0] == form
    found = outputs(run, Role.MODEL_OUTPUT)
    expected = plain_run(path, given)
    assert [t.key.index for t in found] == list(range(len(expected)))
    for tensor, value in zip(found, expected, strict=True):
        assert np.asarray(run.values(tensor)).tobytes() == value.tobytes()
        assert tensor.alias_of


@pytest.mark.parametrize("net", ["cnn", "resnet", "transformer", "gpt", "pieces", "attention"])
def test_values_are_those_of_torch_by_the_name_of_the_node(folder, net):
    """Independent of the asset's own mapping: the decomposed program in float64, node by node.
    A convolution that took in its batch norm has the batch norm's values."""
    wanted = {}

    class Keep(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            first = result[0] if isinstance(result, tuple) else result
            name = node.name
            if "batch_norm" in node.name:
                name = node.args[0].name
            wanted[name] = first
            return result

    module = copy.deepcopy(program(net).module()).double()
    given = NETS[net][1]()
    Keep(module).run(*(v.double() if v.is_floating_point() else v for v in given))
    run = captured(folder, net)
    found = {t.key.op.op: np.asarray(run.values(t)) for t in outputs(run) if not t.key.index}
    common = [n for n in found if isinstance(wanted.get(n), torch.Tensor)]
    assert len(common) >= 0.85 * len({op.origins[-1] for op in run.ops})
    for name in common:
        expected = wanted[name].detach().double().numpy()
        here = found[name].astype(np.float64)
        assert here.size == expected.size, name
        low = expected < -1e30
        here, expected = (np.where(low.ravel(), 0, a.ravel()) for a in (here, expected))
        error = np.linalg.norm(here - expected)
        assert error <= 1e-5 * np.linalg.norm(expected), name


def _again(op, read, attributes):
    """What an op gives, from what it reads in the order it is said to read it."""
    kind = re.sub(r"^coreai\.(decomposable\.)?(broadcasting_)?", "", op.type)
    simple = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "divide": np.divide,
        "maximum": np.maximum,
        "batch_matmul": np.matmul,
        "rsqrt": lambda x: 1 / np.sqrt(x),
    }
    if kind in simple:
        return simple[kind](*read)
    if kind == "transpose":
        return read[0].transpose(attributes["constants"][0])
    if kind == "reshape":
        return read[0].reshape(attributes["constants"][0])
    if kind == "where":
        return np.where(*read)
    if kind == "concat":
        return np.concatenate(read, attributes["constants"][0])
    if kind == "split":
        axis = next(c for c in attributes["constants"] if isinstance(c, int))
        sizes = next(c for c in attributes["constants"] if isinstance(c, list))
        return np.split(read[0], np.cumsum(sizes)[:-1], axis)
    return None


@pytest.mark.parametrize(
    ("net", "most"),
    [("cnn", 0.5), ("transformer", 0.75), ("gpt", 0.75), ("pieces", 0.5), ("attention", 0.8)],
)
def test_every_op_follows_from_what_it_is_said_to_read(folder, net, most):
    """Edges, their order and the order of outputs: each op is computed again with NumPy."""
    run = captured(folder, net)
    checked = 0
    for op in run.ops:
        read = [values(run, edge).astype(np.float64) for edge in op.inputs]
        if op.type.endswith(".where"):
            read[0] = values(run, op.inputs[0])
        expected = _again(op, read, op.attributes)
        if expected is None:
            continue
        pieces = expected if isinstance(expected, list) else [expected]
        for index, piece in enumerate(pieces):
            found = values(run, Edge(op.key, index)).astype(np.float64)
            assert found.shape == piece.shape, op
            np.testing.assert_allclose(found, piece, rtol=1e-4, atol=1e-5, err_msg=str(op))
        checked += 1
    assert checked >= most * len(run.ops)


def test_the_order_of_operands_and_outputs_does_not_depend_on_the_call(folder):
    """The runtime shows them in an order that changes from call to call."""
    torch.manual_seed(5)
    samples = [Inputs((torch.randn(3, 24),)) for _ in range(40)]
    run = sp.capture(str(aimodel(folder, "pieces")), samples)
    by_name = {op.key.op: op for op in run.ops}
    cut = by_name["split_with_sizes"]
    assert [e.index for e in by_name["cat"].inputs] == [1, 0]
    assert [e.index for e in by_name["sub"].inputs] == [2, 0]
    assert by_name["div"].inputs[0] == Edge(cut.key, 2)
    for sample in range(len(samples)):
        part = Part(sample=sample)
        pieces = [values(run, Edge(cut.key, i), part) for i in range(3)]
        whole = values(run, cut.inputs[0], part)
        assert np.concatenate(pieces, -1).tobytes() == whole.tobytes()
        difference = values(run, Edge(by_name["sub"].key), part)
        assert (difference == pieces[2] - pieces[0]).all()
    assert run.info.observer.equal


@pytest.mark.parametrize("net", ["cnn", "transformer", "attention"])
def test_memory_is_not_recorded_and_every_kernel_is(folder, net):
    run = captured(folder, net)
    assert not [op for op in run.ops if "alloc" in op.type or not op.type.startswith("coreai.")]
    for tensor in outputs(run):
        array = np.asarray(run.values(tensor))
        assert array.dtype.kind != "f" or np.isfinite(array).all() or "where" in str(tensor.key)
    recorded = {t.key.op for t in outputs(run)}
    assert recorded == {op.key for op in run.ops}
    for op in run.ops:
        for edge in op.inputs:
            assert run.tensor(TensorKey(edge.op, edge.role, edge.index)) is not None, op


@pytest.mark.parametrize("net", ["cnn", "transformer", "gpt", "attention"])
def test_origins_lines_and_modules_are_those_of_the_torch_nodes(folder, net):
    """The oracle is the program that was converted: its nodes, their traces and modules."""
    nodes = {node.name: node for node in program(net).graph.nodes}
    run = captured(folder, net)
    known = [op for op in run.ops if op.origins]
    assert len(known) == len(run.ops)
    for op in known:
        node = nodes[op.origins[-1]]
        frames = re.findall(r'File "(.+?)", line (\d+)', node.meta["stack_trace"])
        users = [(f, int(n)) for f, n in frames if "/site-packages/torch/" not in f]
        if op.source:
            assert [(f.file, f.line) for f in op.source][-1] == users[-1], op
        stack = [kind.rpartition(".")[2] for _, kind in node.meta["nn_module_stack"].values()]
        assert [re.sub(r"\$\d+", "", m) for m in op.module.split(".") if m] == stack[1:], op
        assert op.module_type == stack[-1]
    assert sum(bool(op.source) for op in known) >= 0.9 * len(known)


def test_every_kernel_that_reads_something_has_its_time(folder):
    run = captured(folder, "cnn")
    times = {str(op.key): op.attributes.get("nanoseconds") for op in run.ops if op.inputs}
    assert times and all(isinstance(t, int) and t > 0 for t in times.values()), times


def test_each_call_of_a_shared_body_has_its_own_origin(folder):
    """All layer norms of a shape are one body in the asset, which speaks of one call only."""
    run = captured(folder, "transformer")
    named = [op for op in run.ops if op.origins[-1].startswith("native_layer_norm")]
    whole = [op.key.op for op in named if op.key.op == op.origins[-1]]
    assert whole == ["native_layer_norm", *(f"native_layer_norm_{n}" for n in range(1, 5))]
    modules = list(dict.fromkeys(op.module for op in named))
    assert modules == [
        "Block$1.LayerNorm$1",
        "Block$1.LayerNorm$2",
        "Block$2.LayerNorm$3",
        "Block$2.LayerNorm$4",
        "LayerNorm$5",
    ]


def test_release_assets_work_and_say_what_they_lack(folder):
    full = captured(folder, "transformer")
    bare = sp.capture(str(aimodel(folder, "transformer", release=True)), NETS["transformer"][1]())
    assert any("RELEASE" in note and "structure and values" in note for note in bare.info.notes)
    assert not any("RELEASE" in note for note in full.info.notes)
    assert not any(op.source or op.module for op in bare.ops)
    bodies = {name for op in bare.ops for name in op.origins}
    assert len(bodies) == 5 and all(name.startswith("@layer_norm_") for name in bodies)
    assert [op.type for op in bare.ops] == [op.type for op in full.ops]
    reads = [[len(op.inputs) for op in run.ops] for run in (bare, full)]
    assert reads[0] == reads[1]


def test_functions_are_chosen_by_name(folder):
    two = {"first": program("cnn"), "second": program("attention")}
    path = save(folder / "two.aimodel", two)
    run = sp.capture(str(path), NETS["attention"][1](), function="second")
    assert run.info.options["function"] == "second"
    assert len(outputs(run, Role.MODEL_OUTPUT)) == 1
    with pytest.raises(InputError, match=r"no function 'third'; .* one of: first, second"):
        sp.capture(str(path), NETS["cnn"][1](), function="third")
    with pytest.raises(InputError, match=r"2 functions.*; set function to one of: first, second"):
        sp.capture(str(path), NETS["cnn"][1]())


def test_inputs_are_cast_to_what_the_function_declares(folder):
    path = str(aimodel(folder, "transformer"))
    ids = NETS["transformer"][1]()[0]
    assert ids.dtype == torch.int64
    run = sp.capture(path, {"ids": ids.numpy()})
    (given,) = outputs(run, Role.MODEL_INPUT)
    assert given.dtype == "i32"
    with pytest.raises(
        InputError, match=r"input ids holds values of i64 that do not fit into ids i32\[2, 16\]"
    ):
        sp.capture(path, {"ids": ids.numpy() + 2**40})
    with pytest.raises(InputError, match=r"shape \[3, 16\]"):
        sp.capture(path, {"ids": np.zeros((3, 16), np.int32)})
    with pytest.raises(InputError, match="an array of f32"):
        sp.capture(path, {"ids": np.zeros((2, 16), np.float32)})
    again = sp.capture(path, run.path if hasattr(run, "path") else {"ids": ids})
    assert again.info.observer.equal


def test_axes_that_are_open_take_any_length(folder):
    from models.coreai_files import decomposed

    model, given = in_type("attention", "f32")
    length = torch.export.Dim("length", min=2, max=64)
    path = folder / "open.aimodel"
    save(path, {"main": decomposed(model, given, dynamic_shapes=({1: length},))})
    for count in (5, 17):
        x = torch.randn(2, count, WIDTH, generator=torch.Generator().manual_seed(count))
        run = sp.capture(str(path), (x,))
        assert run.info.observer.equal
        (result,) = outputs(run, Role.MODEL_OUTPUT)
        expected = model(x).detach().numpy()
        np.testing.assert_allclose(run.values(result), expected, atol=2e-6)
        assert sp.compare(run, sp.capture(model, (x,))).verdict == "close"


@torch.no_grad()
def test_states_go_from_step_to_step(folder):
    path = str(aimodel(folder, "cached"))
    steps = [Inputs(given) for given in cached_steps()]
    run = sp.capture(path, steps, steps=True)
    model = NETS["cached"][0]()
    assert sorted({t.key.part for t in outputs(run)}) == [Part(step=n) for n in range(3)]
    for number, given in enumerate(cached_steps()):
        part = Part(step=number)
        before = model.cache.clone().numpy()
        expected = model(*given).numpy()
        (found,) = (t for t in outputs(run, Role.MODEL_OUTPUT) if t.key.part == part)
        np.testing.assert_allclose(run.values(found), expected, atol=1e-6)
        after, earlier = (
            run.values(t)
            for t in sorted(outputs(run, Role.STATE), key=lambda t: t.key.index)
            if t.key.part == part
        )
        np.testing.assert_allclose(earlier, before, atol=1e-6)
        np.testing.assert_allclose(after, model.cache.numpy(), atol=1e-6)
    assert run.info.observer.equal
    assert sum("began as zeros" in note for note in run.info.notes) == 1


@torch.no_grad()
def test_samples_that_are_no_steps_begin_anew_and_states_may_be_given(folder):
    path = str(aimodel(folder, "cached"))
    steps = [Inputs(given) for given in cached_steps(2)]
    run = sp.capture(path, steps)
    before = [run.values(t) for t in outputs(run, Role.STATE) if t.key.index == 1]
    assert len(before) == 2 and not any(np.asarray(b).any() for b in before)
    token, position = cached_steps(2)[1]
    filled = np.ones((1, SLOTS, WIDTH), np.float32)
    run = sp.capture(path, {"token": token, "position": position, "b_cache": filled})
    model = NETS["cached"][0]()
    model.cache.fill_(1.0)
    (found,) = outputs(run, Role.MODEL_OUTPUT)
    np.testing.assert_allclose(run.values(found), model(token, position).numpy(), atol=1e-6)


def test_a_capture_inside_a_running_event_loop(folder):
    """As in a notebook."""
    path = str(aimodel(folder, "pieces"))

    async def notebook():
        return sp.capture(path, NETS["pieces"][1]())

    assert asyncio.run(notebook()).info.observer.equal


def test_what_is_wrong_is_said_in_one_line(folder, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"no such folder: .*none\.aimodel"):
        sp.capture(str(tmp_path / "none.aimodel"), (np.zeros(3),))
    (tmp_path / "empty.aimodel").mkdir()
    with pytest.raises(InputError) as caught:
        sp.capture(str(tmp_path / "empty.aimodel"), (np.zeros(3),))
    assert "\n" not in str(caught.value)
    whole = aimodel(folder, "pieces")
    broken = tmp_path / "broken.aimodel"
    shutil.copytree(whole, broken)
    with (broken / "main.mlirb").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(InputError, match=r"main\.hash"):
        sp.capture(str(broken), NETS["pieces"][1]())
    (broken / "main.mlirb").unlink()
    with pytest.raises(InputError):
        sp.capture(str(broken), NETS["pieces"][1]())
    path = str(whole)
    with pytest.raises(InputError, match="macOS") as caught:
        sp.capture(path, NETS["pieces"][1](), compute_units="gpu")
    assert "\n" not in str(caught.value)
    monkeypatch.delattr(NDArray, "_wrap")
    with pytest.raises(Unsupported, match=r"has no _wrap; install coreai-core==1\.0\.0b3"):
        sp.capture(path, NETS["pieces"][1]())
