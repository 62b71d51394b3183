"""Recorded runs, changed: what a dump, or the memory behind it, gets wrong."""

from dataclasses import replace as changed_info

import numpy as np

from syncpoint.run.model import Observer, Role, replace_fields
from syncpoint.run.reader import in_memory
from zoo.draw import apart
from zoo.planting.registry import planter
from zoo.programs import values_of
from zoo.work import NoSite, pick


def arrays_of(run):
    """All values by key."""
    return {tensor.key: np.array(run.values(tensor)) for tensor in run.tensors}


def edited(run, arrays, info=None, ops=None, **tensors):
    """A run with other values, facts or ops; `tensors` maps what is changed in their records,
    key -> value."""
    made = []
    for tensor in run.tensors:
        more = {name: said[tensor.key] for name, said in tensors.items() if tensor.key in said}
        # What is said of the bytes on disk does not hold of those in memory.
        plain = {"shard": "", "offset": 0, "digest": "", "digest_kind": "", "statistics": None}
        array = np.ascontiguousarray(arrays[tensor.key]).reshape(tensor.shape)
        made.append((replace_fields(tensor, **plain, nbytes=array.nbytes, **more), array))
    return in_memory(info or run.info, list(ops if ops is not None else run.ops), made)


def inner(run, least=32):
    """Outputs of ops that others read and that are no result of the model, in order."""
    results = {t.alias_of for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}
    read = {(edge.op, edge.index) for op in run.ops for edge in op.inputs}
    return [
        t
        for t in run.tensors
        if t.key.role is Role.OUTPUT
        and str(t.key) not in results
        and not t.alias_of
        and t.dtype in ("f32", "f16", "bf16")
        and t.count >= least
        and (t.key.op, t.key.index) in read
    ]


def _put(work, tensor, value, said, **more):
    """One tensor of the run with another value."""
    arrays = arrays_of(work.run)
    old = arrays[tensor.key]
    arrays[tensor.key] = value.astype(old.dtype).reshape(old.shape)
    work.change = apart(_wide(old), _wide(arrays[tensor.key]))
    work.blame(tensor.key.op)
    work.said = f"{tensor.key.op} {said}"
    work.run = edited(work.run, arrays, **more)


def _wide(array):
    return np.asarray(array, np.float64)


def _bulky(work):
    """Tensors that a comparison will look at: what products, norms and activations give."""
    kinds = ("conv2d", "linear", "norm", "relu", "silu", "gelu", "add", "matmul", "hardswish")
    found = []
    for tensor in inner(work.run):
        op = work.run.op(tensor.key.op)
        if any(kind in op.type for kind in kinds):
            found.append(tensor)
    return found


@planter("run")
def dump_stale(work):
    """A buffer that was read before it was written: it holds what another input left there."""
    from zoo.nets_cnn import images
    from zoo.nets_transformer import texts

    tensor = pick(work, _bulky(work), "no tensor")
    cnn = work.net.family == "cnn"
    other = (images(work.rng),) if cnn else texts(work.rng, work.net.model)
    values = values_of(work.program, other, work.dtype)
    name = str(tensor.key.op)
    if name not in values:
        raise NoSite(f"{name} is not in the program")
    _put(work, tensor, values[name].float().numpy(), "holds what the input before left")


@planter("run")
def dump_garbage(work, share):
    """A buffer that nobody wrote, wholly or from some place on."""
    tensor = pick(work, _bulky(work), "no tensor")
    value = np.array(work.run.values(tensor))
    noise = np.random.default_rng(work.rng.randrange(1 << 30))
    bits = noise.integers(0, 256, value.nbytes, np.uint8).tobytes()
    junk = np.frombuffer(bits, value.dtype).reshape(-1).copy()
    flat = value.reshape(-1).copy()
    start = int(len(flat) * (1 - share))
    flat[start:] = junk[start:]
    _put(work, tensor, flat, f"holds what was in memory before, in {share:.0%} of it")


@planter("run")
def dump_cut_off(work, share):
    """The copy to the host was not finished: zeros at the end."""
    tensor = pick(work, _bulky(work), "no tensor")
    flat = np.array(work.run.values(tensor)).reshape(-1)
    flat[int(len(flat) * (1 - share)) :] = 0
    _put(work, tensor, flat, f"ends in zeros, {share:.0%} of it")


@planter("run")
def dump_late(work):
    """A buffer was read after something else had been put there; what was computed is right."""
    found = []
    tensors = _bulky(work)
    for at, tensor in enumerate(tensors):
        later = [t for t in tensors[at + 1 :] if t.shape == tensor.shape]
        found += [(tensor, other) for other in later]
    tensor, other = pick(work, found, "no two tensors of one shape")
    value = np.array(work.run.values(other))
    _put(work, tensor, value, f"was read late and holds {other.key.op}")


@planter("run")
def dump_names_swapped(work):
    """Two tensors of one shape under each other's names."""
    tensors = _bulky(work)
    found = [
        (a, b) for at, a in enumerate(tensors) for b in tensors[at + 1 :] if a.shape == b.shape
    ]
    one, other = pick(work, found, "no two tensors of one shape")
    arrays = arrays_of(work.run)
    work.change = apart(_wide(arrays[one.key]), _wide(arrays[other.key]))
    arrays[one.key], arrays[other.key] = arrays[other.key], arrays[one.key]
    work.blame(one.key.op, other.key.op)
    work.said = f"{one.key.op} and {other.key.op} have each other's names"
    work.run = edited(work.run, arrays)


@planter("run")
def dump_layout(work):
    """Written with channels last, and labelled as if they came first."""
    found = [t for t in _bulky(work) if len(t.shape) == 4 and t.shape[1] != 1]
    tensor = pick(work, found, "no picture")
    value = np.array(work.run.values(tensor))
    _put(work, tensor, np.moveaxis(value, 1, -1).copy(), "lies with its channels last")


@planter("run")
def observer_effect(work, amount):
    """Asking for tensors changed what was fused: the recorded outputs are not those of a plain
    run, which the recorder says."""
    arrays = arrays_of(work.run)
    seen = np.random.default_rng(work.rng.randrange(1 << 30))
    tensor = pick(work, _bulky(work), "no tensor")
    after = False
    worst = 0.0
    for t in work.run.tensors:
        after = after or t.key == tensor.key
        if after and t.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT) and t.dtype == "f32":
            old = arrays[t.key]
            noise = seen.standard_normal(old.shape) * amount * float(np.abs(old).mean())
            arrays[t.key] = (old + noise).astype(old.dtype)
            worst = max(worst, apart(_wide(old), _wide(arrays[t.key])))
    said = Observer(False, "the recorded outputs differ from those of a plain run")
    work.change = worst
    work.said = f"from {tensor.key.op} on the recorded values are not those of a plain run"
    work.run = edited(work.run, arrays, changed_info(work.run.info, observer=said))
