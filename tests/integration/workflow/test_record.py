"""Recording by hand: it makes an ordinary run, which pairs and measures as captures do."""

import copy
import io
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn

import syncpoint as sp
from helpers.commands import syncpoint
from models.transformer import make_transformer, transformer_inputs
from syncpoint.errors import InputError, Unsupported
from syncpoint.run.model import Kept, OpKey, Part, Role, TensorKey


def values(run, op, **part):
    key = TensorKey(OpKey(op), part=Part(**part))
    found = run.tensor(key)
    assert found is not None, (key, [str(t.key) for t in run.tensors])
    return run.values(found)


def keys(run):
    return [str(tensor.key) for tensor in run.tensors]


def run_in_threads(work, count):
    """Call the function with 0 to count - 1, each in its own thread, and wait for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# Tensors by name.


def test_tensors_lie_in_a_run_under_name_step_sample_and_rank(tmp_path):
    with sp.record(tmp_path / "engine.run", rank=3) as rec:
        for step in range(2):
            value = np.full((1, 2, 4, 8), step, np.float32)
            rec.tensor("layer3.attn", value, step=step, sample=1, dims="b s  h(tp) d")
            value += 100  # the engine goes on with its own
    assert rec.path == tmp_path / "engine.rank3.run"
    run = sp.open_run(rec.path)
    assert run.info.complete and run.info.precision == "f32" and run.info.device == "cpu"
    assert [t.layout for t in run.tensors] == ["b s h(tp) d"] * 2
    assert values(run, "layer3.attn", step=1, sample=1, rank=3).max() == 1
    assert len(run.ops) == 1


def test_every_kind_of_value(tmp_path):
    with sp.record(tmp_path / "a.run") as rec:
        rec.tensor("bf16", torch.tensor([1.5], dtype=torch.bfloat16))
        rec.tensor("fp8", torch.tensor([1.5]).to(torch.float8_e4m3fn))
        rec.tensor("number", 0.25)
        rec.tensor("empty", np.empty((0, 3), np.float32))
        rec.tensor("learns", torch.ones(2, requires_grad=True) * 3)
    run = sp.open_run(rec.path)
    assert [t.dtype for t in run.tensors] == ["bf16", "f8_e4m3fn", "f64", "f32", "f32"]
    assert values(run, "number") == 0.25
    assert run.tensors[-1].requires_grad


def test_a_name_again_in_a_step_is_the_next_call(tmp_path):
    with sp.record(tmp_path / "a.run") as rec:
        for step in range(2):
            assert rec.step() == step
            for call in range(3):
                key = rec.tensor("x", np.array([step, call]))
                assert key.op.call == call
                rec.tensor("mask", np.array([call]), role="model-input")
        assert rec.step(7) == 7
        rec.tensor("x", np.array([7, 0]))
        rec.tensor("x", np.array([9, 9]), step=1)
    run = sp.open_run(rec.path)
    found = {str(t.key): run.values(t).tolist() for t in run.tensors if t.key.op.op == "x"}
    assert found == {
        "x@step=0": [0, 0], "x#1@step=0": [0, 1], "x#2@step=0": [0, 2],
        "x@step=1": [1, 0], "x#1@step=1": [1, 1], "x#2@step=1": [1, 2], "x#3@step=1": [9, 9],
        "x@step=7": [7, 0],
    }  # fmt: skip
    assert [op.key.call for op in run.ops] == [0, 1, 2, 3]


def test_roles_and_edges_of_those_who_know_them(tmp_path):
    with sp.record(tmp_path / "a.run") as rec:
        x = rec.tensor("x", np.ones(2), role="model-input")
        rec.tensor("w", np.ones(2), role="parameter")
        h = rec.tensor("h", np.ones(2), inputs=[x, "w"], type="Mul", module="net")
        a, b = rec.op(
            "split", [np.ones(1), np.ones(1)], inputs=[h], type="Split",
            attributes={"axis": 0}, dims=["n", None],
        )  # fmt: skip
        rec.tensor("logits", np.ones(1), inputs=[a, b, "h"], role="model-output")
        rec.tensor("loss", 1.0, role="model-output")
    run = sp.open_run(rec.path)
    ops = {op.key.op: op for op in run.ops}
    assert [(e.op.op, e.index, e.role) for e in ops["h"].inputs] == [
        ("x", 0, Role.MODEL_INPUT), ("w", 0, Role.PARAMETER),
    ]  # fmt: skip
    assert [(e.op.op, e.index) for e in ops["logits"].inputs] == [
        ("split", 0), ("split", 1), ("h", 0),
    ]  # fmt: skip
    assert ops["split"].attributes == {"axis": 0} and ops["h"].module == "net"
    outputs = [t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT]
    assert [(t.name, t.key.index) for t in outputs] == [("logits", 0), ("loss", 1)]


def test_the_options_of_capture(tmp_path):
    big = np.arange(1000, dtype=np.float32)
    with sp.record(tmp_path / "s.run", record="statistics") as rec:
        rec.tensor("x", big)
        rec.tensor("in", big, role="model-input")
    assert [t.kept for t in sp.open_run(rec.path).tensors] == [Kept.STATISTICS, Kept.VALUES]
    with sp.record(tmp_path / "f.run", filter="keep") as rec:
        rec.tensor("keep.me", big)
        rec.tensor("not.me", big)
    assert keys(sp.open_run(rec.path)) == ["keep.me"]
    with sp.record(tmp_path / "m.run", max_bytes=5000) as rec:
        rec.tensor("a", big)
        rec.tensor("b", big + 1)
    run = sp.open_run(rec.path)
    assert [t.kept for t in run.tensors] == [Kept.VALUES, Kept.STATISTICS]
    assert any("budget of 5000 bytes" in note for note in run.info.notes)
    with pytest.raises(InputError, match="already exists; add --force"):
        sp.record(tmp_path / "m.run")
    with sp.record(tmp_path / "m.run", overwrite=True) as rec:
        rec.tensor("c", big)
    assert keys(sp.open_run(rec.path)) == ["c"]


@pytest.mark.parametrize(
    "call",
    [
        lambda rec: rec.tensor("x", [1, 2]),
        lambda rec: rec.tensor("x", None),
        lambda rec: rec.tensor("", np.ones(2)),
        lambda rec: rec.tensor(3, np.ones(2)),
        lambda rec: rec.tensor("x", np.ones(2), step=-1),
        lambda rec: rec.tensor("x", np.ones(2), step=1.5),
        lambda rec: rec.tensor("x", np.ones(2), sample=True),
        lambda rec: rec.tensor("x", np.ones(2), dims="a b"),
        lambda rec: rec.tensor("x", np.ones(2), role="golden"),
        lambda rec: rec.tensor("x", np.ones(2), inputs=["y"]),
        lambda rec: rec.op("x", [np.ones(2)], dims=["a", "b"]),
        lambda rec: rec.op("x", [np.ones(2), "text"]),
        lambda rec: rec.attach(torch.ones(2)),
        lambda rec: rec.step("one"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(tmp_path, call):
    with sp.record(tmp_path / "a.run") as rec:
        with pytest.raises(InputError) as raised:
            call(rec)
        assert "\n" not in str(raised.value)
        rec.tensor("x", np.ones(2))
    assert keys(sp.open_run(rec.path)) == ["x"]
    assert len(sp.open_run(rec.path).ops) == 1
    with pytest.raises(InputError, match="closed"):
        rec.tensor("y", np.ones(2))
    rec.close()


@pytest.mark.parametrize("options", [{"rank": -1}, {"rank": "0"}, {"record": "all"}])
def test_wrong_options_leave_no_folder(tmp_path, options):
    with pytest.raises(InputError):
        sp.record(tmp_path / "a.run", **options)
    assert not list(tmp_path.iterdir())


def test_two_ranks_need_two_runs_and_are_told_so(tmp_path):
    with (
        sp.record(tmp_path / "a.run", rank=0) as zero,
        sp.record(tmp_path / "a.run", rank=1) as one,
    ):
        zero.tensor("x", np.zeros(2))
        one.tensor("x", np.ones(2))
        assert zero.path.name == "a.rank0.run" and one.path.name == "a.rank1.run"
    assert values(sp.open_run(one.path), "x", rank=1).tolist() == [1, 1]
    with (
        sp.record(tmp_path / "b.run"),
        pytest.raises(InputError, match=r"is locked: .*; if several ranks record.*rank="),
    ):
        sp.record(tmp_path / "b.run")


def test_an_exception_leaves_what_was_recorded_and_says_why(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(ZeroDivisionError), sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        model(torch.ones(1, 2))
        rec.tensor("x", np.ones(2))
        raise ZeroDivisionError("in the\nmiddle")
    run = sp.open_run(rec.path)
    assert not run.info.complete and "ZeroDivisionError" in run.info.missing
    assert values(run, "x", step=0).tolist() == [1, 1]
    before = keys(run)
    model(torch.ones(1, 2))  # detached: nobody listens any more
    assert keys(sp.open_run(rec.path)) == before
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert not torch.nn.modules.module._has_any_global_hook()


def test_a_killed_process_leaves_a_run_that_opens(tmp_path):
    code = (
        "import numpy as np, syncpoint as sp, time\n"
        "rec = sp.record('a.run')\n"
        "for i in range(5): rec.tensor('x', np.full(1000, i, np.float32), step=i)\n"
        "rec.flush()\n"
        "print('flushed', flush=True)\n"
        "rec.tensor('late', np.ones(3))\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "flushed\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    run = sp.open_run(tmp_path / "a.run")
    assert not run.info.complete and "its writer died" in run.info.missing
    for step in range(5):
        assert (values(run, "x", step=step) == step).all()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_run_to_its_parent(tmp_path):
    read, write = os.pipe()
    with sp.record(tmp_path / "a.run") as rec:
        rec.tensor("x", np.ones(2))
        rec.flush()
        child = os.fork()
        if child == 0:
            said = b"nothing"
            try:
                with suppress(RuntimeError), rec:
                    try:
                        rec.tensor("y", np.ones(2))
                    except InputError as error:
                        said = str(error).encode()
                    raise RuntimeError
            finally:
                os.write(write, said)
                os._exit(0)
        os.waitpid(child, 0)
        rec.tensor("z", np.ones(2))
    assert b"this one is a fork" in os.read(read, 1000)
    run = sp.open_run(rec.path)
    assert run.info.complete and keys(run) == ["x", "z"]


def test_threads_lose_and_mix_nothing(tmp_path):
    with sp.record(tmp_path / "a.run") as rec:

        def work(number):
            for step in range(50):
                rec.tensor("shared", np.array([number, step]), step=step)
                rec.tensor(f"own{number}", np.array([step]), step=step)

        run_in_threads(work, 8)
    run = sp.open_run(rec.path)
    assert len(run.tensors) == 8 * 50 * 2
    for step in range(50):
        found = {tuple(run.values(t)) for t in run.tensors
                 if t.key.op.op == "shared" and t.key.part.step == step}  # fmt: skip
        assert found == {(n, step) for n in range(8)}


# Attached modules.


class Odd(nn.Module):
    """Reuses a module, nests its outputs, and takes keywords."""

    def __init__(self):
        super().__init__()
        self.once = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)

    def forward(self, x, *more, extra, flag=True):
        y = self.twice(self.twice(self.once(x)))
        return {"logits": (y, y + extra["bias"]), "none": None, "flag": flag, "odd": {1, 2}}


def test_everything_nested_reused_and_given_by_keyword(tmp_path):
    torch.manual_seed(0)
    model = Odd()
    x, bias = torch.randn(2, 4), torch.randn(4)
    with sp.record(tmp_path / "a.run") as rec, torch.no_grad():
        rec.attach(model)
        out = model(x, torch.ones(1), extra={"bias": bias})
    run = sp.open_run(rec.path)
    by_name = {t.name: t for t in run.tensors if t.name}
    assert set(by_name) == {"x", "args[0]", 'extra["bias"]', 'out["logits"][0]', 'out["logits"][1]'}
    assert run.values(by_name['extra["bias"]']).tolist() == bias.tolist()
    second = by_name['out["logits"][1]']
    assert second.key.role is Role.MODEL_OUTPUT and second.key.index == 1
    assert run.values(second).tobytes() == out["logits"][1].numpy().tobytes()
    assert by_name['out["logits"][0]'].alias_of == "twice#1@step=0"
    assert [str(op.key) for op in run.ops] == ["once", "twice", "twice#1", "Odd"]
    assert [op.module for op in run.ops] == ["once", "twice", "twice", ""]
    assert {t.key.op.op for t in run.tensors if t.key.role is Role.PARAMETER} == {
        "once.weight", "once.bias", "twice.weight", "twice.bias",
    }  # fmt: skip
    assert any('out["odd"] of Odd is a set' in note for note in run.info.notes)


def test_calls_of_the_root_are_steps_and_modules_are_kept_apart(tmp_path):
    draft, main = (nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(2))
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(draft, "draft")
        with pytest.raises(InputError, match="already attached under the name"):
            rec.attach(main, "draft")
        rec.attach(main)
        for _ in range(2):
            draft(torch.ones(1, 3))
        main(torch.ones(1, 3))
        rec.tensor("sampled", np.array([1]))
    assert [str(t.key) for t in sp.open_run(rec.path).tensors if t.key.role is Role.OUTPUT] == [
        "draft/0@step=0", "draft/1@step=0", "draft/0@step=1", "draft/1@step=1",
        "0@step=0", "1@step=0", "sampled@step=0",
    ]  # fmt: skip


def test_explicit_steps_and_no_steps(tmp_path):
    model = nn.Sequential(nn.ReLU())
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        rec.step(5)
        model(torch.ones(1))
        model(torch.ones(1))
    assert keys(sp.open_run(rec.path)) == [
        "input!model-input@step=5", "0@step=5", "Sequential!model-output@step=5",
        "input#1!model-input@step=5", "0#1@step=5", "Sequential#1!model-output@step=5",
    ]  # fmt: skip
    with sp.record(tmp_path / "b.run") as rec:
        rec.attach(model, steps=False)
        model(torch.ones(1))
    assert keys(sp.open_run(rec.path)) == ["input!model-input", "0", "Sequential!model-output"]


def test_looking_changes_neither_outputs_nor_gradients(tmp_path):
    def trained(watched):
        model = make_transformer().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outs = []
        rec = sp.record(tmp_path / "a.run") if watched else None
        if rec:
            rec.attach(model)
        for seed in range(3):
            out = model(*transformer_inputs(seed=seed))
            optimizer.zero_grad()
            out.float().pow(2).mean().backward()
            optimizer.step()
            outs += [out.detach().clone()]
        if rec:
            rec.close()
        grads = [p.grad for p in model.parameters()]
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        return [*outs, *grads, *model.parameters()], out

    plain, out = trained(False)
    seen, watched_out = trained(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    assert type(watched_out.grad_fn) is type(out.grad_fn)
    run = sp.open_run(tmp_path / "a.run")
    assert run.info.complete and {t.key.part.step for t in run.tensors} == {-1, 0, 1, 2}
    # What was recorded are the values of that step, not of a later one.
    for step in range(3):
        key = next(t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT
                   and t.key.part.step == step)  # fmt: skip
        assert run.values(key).tobytes() == plain[step].numpy().tobytes()


def test_the_fused_encoder_stays_fused(tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        plain = model(x)
        with sp.record(tmp_path / "a.run") as rec:
            rec.attach(model)
            seen = model(x)
    assert torch.equal(plain, seen)
    assert "layers.0" in {op.key.op for op in sp.open_run(rec.path).ops}


def test_inplace_ops_between_and_inside_modules(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.ReLU(inplace=True)
            self.c = nn.Identity()

        def forward(self, x):
            y = self.b(self.a(x))
            z = self.a(x)
            y += 1
            y *= z
            return self.c(y)

    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 2)
    with torch.no_grad():
        first = model.a(x)
        with sp.record(tmp_path / "a.run") as rec:
            rec.attach(model)
            model(x)
    run = sp.open_run(rec.path)
    assert values(run, "a", step=0).tobytes() == first.numpy().tobytes()
    assert values(run, "b", step=0).tobytes() == first.relu().numpy().tobytes()
    ops = {str(op.key): op for op in run.ops}
    # y was written to after b gave it, with what the second call of a gave.
    assert {str(e.op) for e in ops["c"].inputs} == {"b", "a#1"}
    assert ops["c"].attributes == {"inputs_assumed": True}


def test_copies_and_pickles_of_an_attached_module_are_not_heard(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2))
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        copied = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for other in (copied, loaded):
            other(torch.ones(1, 2))
    assert not sp.open_run(rec.path).tensors


def test_hooks_of_the_user_that_replace_outputs_come_first(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, out: out * 0 + 7)
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        model(torch.ones(1, 2))
    run = sp.open_run(rec.path)
    assert values(run, "0", step=0).tolist() == [[7, 7]]
    assert len(model[0]._forward_hooks) == 1


def test_what_runs_again_in_the_backward_pass_is_not_recorded_twice(tmp_path):
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = Net()
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
    run = sp.open_run(rec.path)
    assert [str(op.key) for op in run.ops] == [
        "inner.0", "inner.1", "inner.2", "inner", "Net",
    ]  # fmt: skip
    assert any("backward" in note for note in run.info.notes)


def test_a_model_that_raises_and_is_called_again(tmp_path):
    class Moody(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, x):
            y = self.inner(x)
            if x.sum() < 0:
                raise ValueError("not today")
            return y

    model = Moody()
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        model(torch.ones(1))
        with pytest.raises(ValueError, match="not today"):
            model(-torch.ones(1))
        model(torch.ones(1))
    outputs = [k for k in keys(sp.open_run(rec.path)) if "input" not in k]
    assert outputs == ["inner@step=0", "Moody!model-output@step=0", "inner@step=1",
                       "inner@step=2", "Moody!model-output@step=2"]  # fmt: skip


def test_threads_that_call_one_model_have_steps_of_their_own(tmp_path):
    model = nn.Sequential(nn.Identity(), nn.Identity())
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)

        def work(number):
            for _ in range(20):
                model(torch.full((3,), float(number)))
                time.sleep(0)

        run_in_threads(work, 4)
    run = sp.open_run(rec.path)
    for step in range(80):
        found = {tuple(run.values(t)) for t in run.tensors if t.key.part.step == step}
        assert len(found) == 1


def test_compiled_modules_are_refused_and_compiling_later_is_seen(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = torch.randn(3, 2)
    with sp.record(tmp_path / "a.run") as rec, torch.no_grad():
        with pytest.raises(Unsupported, match=r"torch\.compile"):
            rec.attach(torch.compile(model, backend="eager"))
        rec.attach(model)
        plain = model(x)
        with pytest.warns(UserWarning, match="global hooks"):
            compiled = torch.compile(model, backend="eager")(x)
    assert torch.equal(plain, compiled)
    run = sp.open_run(rec.path)
    assert (values(run, "0", step=0) == values(run, "0", step=1)).all()


def test_what_cannot_be_read_is_a_note_and_never_stops_the_model(tmp_path):
    model = nn.Sequential(nn.Identity(), nn.LazyLinear(2))
    with sp.record(tmp_path / "a.run") as rec:
        rec.attach(model)
        assert model(torch.ones(1, 3)).shape == (1, 2)
    run = sp.open_run(rec.path)
    assert run.info.complete and any("1.weight parameter" in note for note in run.info.notes)
    with sp.record(tmp_path / "b.run") as rec:
        rec.attach(nn.Identity())
        meta = nn.Identity()
        rec.attach(meta, "meta")
        assert meta(torch.ones(2, device="meta")).device.type == "meta"
    assert any("was not recorded" in note for note in sp.open_run(rec.path).info.notes)


# Compared.


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def by_hand(path, model, x, scale=1.0):
    """The same net in NumPy, each tensor under the name that the capture has for it."""
    w1, b1, w2, b2 = (p.detach().numpy() for p in model.parameters())
    with sp.record(path, runtime="numpy") as rec:
        rec.tensor("x", x, role="model-input")
        rec.tensor("linear", h := x @ w1.T + b1)
        rec.tensor("relu", h := np.maximum(h, 0))
        rec.tensor("linear_1", y := h @ (w2.T * np.float32(scale)) + b2)
        rec.tensor("out", y, role="model-output")
    return rec.path


def test_an_engine_in_numpy_against_a_capture(tmp_path):
    torch.manual_seed(0)
    model, x = Net().eval(), np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    reference = sp.capture(model, (x,), out=tmp_path / "reference.run")
    good = sp.compare(by_hand(tmp_path / "good.run", model, x), reference)
    assert good.verdict == "close" and good.exit_code() == 0
    assert good.coverage.target == 1.0 == good.coverage.reference
    bad = sp.compare(by_hand(tmp_path / "bad.run", model, x, 1.5), reference)
    assert bad.verdict == "large"
    assert [row.target.key.op.op for row in bad.first_divergence] == ["linear_1"]
    found = syncpoint("compare", "bad.run", "reference.run", cwd=tmp_path, code=1)
    assert "■ large: linear_1" in found.stdout and "(numpy, cpu, f32)" in found.stdout
    syncpoint("compare", "good.run", "reference.run", cwd=tmp_path, code=0)


def attached(path, model, dtype=None, seeds=range(2)):
    with sp.record(path) as rec, torch.no_grad():
        rec.attach(model)
        for seed in seeds:
            model(*(x.to(dtype) if dtype and x.is_floating_point() else x
                    for x in transformer_inputs(seed=seed)))  # fmt: skip
    return rec.path


def test_attached_modules_in_two_precisions_and_a_planted_fault(tmp_path):
    model = make_transformer().eval()
    reference = attached(tmp_path / "reference.run", model)
    low = copy.deepcopy(model).to(torch.bfloat16)
    good = sp.compare(attached(tmp_path / "good.run", low, torch.bfloat16), reference)
    assert good.verdict == "close"
    assert good.coverage.target == 1.0 == good.coverage.reference
    assert {row.target.key.part.step for row in good.outputs} == {0, 1}

    with torch.no_grad():
        low.layers[1].mlp.up.bias.add_(1.0)
    bad = sp.compare(attached(tmp_path / "bad.run", low, torch.bfloat16), reference)
    assert bad.verdict == "large"
    assert [row.target.key.op.op for row in bad.first_divergence] == ["layers.1.mlp.up"]
    found = syncpoint("compare", "bad.run", "reference.run", cwd=tmp_path, code=1)
    assert "layers.1.mlp.up" in found.stdout
    syncpoint("compare", "good.run", "reference.run", cwd=tmp_path, code=0)


def test_autocast_is_judged_by_the_precision_upstream(tmp_path):
    """A norm gives float32 under autocast, of values that went through bfloat16."""
    model = make_transformer().eval()
    reference = attached(tmp_path / "reference.run", model)
    with torch.autocast("cpu", torch.bfloat16):
        target = attached(tmp_path / "target.run", model)
    comparison = sp.compare(target, reference)
    types = {t.dtype for t in sp.open_run(target).tensors if t.key.role is Role.OUTPUT}
    assert types == {"f32", "bf16"}
    assert comparison.verdict == "close", str(comparison)


def test_a_step_inherits_nothing_from_one_that_follows(tmp_path):
    """An early op that is off in a later step must not hide the late op that was off before."""
    x = np.ones(4, np.float32)
    for name, factors in (("good", (1, 1, 1, 1)), ("bad", (1, 2, 2, 2))):
        with sp.record(tmp_path / f"{name}.run") as rec:
            for step in range(2):
                first, second = factors[2 * step : 2 * step + 2]
                rec.tensor("early", x * first, step=step)
                rec.tensor("late", x * first * second, step=step)
    runs = [sp.open_run(tmp_path / f"{name}.run") for name in ("bad", "good")]
    found = sp.compare(*runs).first_divergence
    assert [(row.target.key.op.op, row.target.key.part.step) for row in found] == [("late", 0)]
