"""One execution of a function on its way into a run, as the runtime's callbacks tell of it.

The profiler says which kernel runs; the logger shows what it reads before it runs and what it
has written after. Kernels that only hand out memory are left out: what is in it is whatever was
there before. A value is known again by its place in memory, its form and its bytes, all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
from coreai.runtime import NDArray

from syncpoint.errors import CaptureError, SyncpointError
from syncpoint.run.dtypes import FLOATS, Kind, from_numpy
from syncpoint.run.model import Edge, Op, OpKey, Part, Quantization, Role, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.coreai.kernel_to_op import Aligner, Tie
from syncpoint.runtimes.coreai.arrays import Seen, of_array, placed, seen
from syncpoint.runtimes.coreai.debug_info import NOTHING, Debug
from syncpoint.runtimes.coreai.program import Node, Program, short
from syncpoint.runtimes.coreai.quantization import UNPACKING, Rounded, meaning, rows
from syncpoint.runtimes.import_path import one_line
from syncpoint.runtimes.protocol import Array

CALL = "call."
_MEMORY = ("NDArray.alloc", "Context.")
_EXECUTE = "Function Execute"
"""The phase that computes results; others find out shapes, with kernels of the same names."""
_CONSTANT = "NDArray.alloc_const"
_FEW = 16
"""Integers that fit into the attributes of an op: axes, sizes, shapes."""
_KEPT = 8
"""How many values that lay at one place are remembered."""

_ELEMENTS = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"si{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (4, 8, 16, 32, 64)},
    "bfloat16": "bf16",
}
"""Element types as programs write them."""

Form = tuple[tuple[int, ...], Any]


@dataclass(frozen=True)
class _Held:
    """What lies or lay at a place in memory."""

    form: Form
    digest: int
    tie: Tie


@dataclass
class Constants:
    """The constants of a function: shown when it is loaded, once."""

    values: dict[int, Array] = field(default_factory=dict)
    held: dict[int, list[_Held]] = field(default_factory=dict)

    def add(self, kernel: int, value: Seen) -> None:
        """Remember one; its memory lives as long as the function."""
        self.values[kernel] = value.array
        kind = value.array.dtype
        element = _ELEMENTS.get(kind.name) or ("i1" if kind.kind == "b" else "")
        tie = Tie(constant=kernel, form=(value.array.shape, element))
        made = _Held(value.form, value.digest, tie)
        self.held.setdefault(value.address, []).append(made)

    def attribute(self, kernel: int) -> Any:
        """The few integers of a constant as JSON; None for what is a parameter."""
        array = self.values[kernel]
        plain = from_numpy(array.dtype).kind in (Kind.INT, Kind.BOOL)
        return array.tolist() if plain and array.size <= _FEW else None


@dataclass
class Names:
    """What kernels are called, the same in all parts of a run."""

    debug: Mapping[int, Debug]
    names: dict[int, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def of(self, kernel: int, type: str, said: Debug) -> str:
        """The torch node it completes, or else its type and id."""
        if kernel not in self.names:
            name = said.origins[-1] if said.completes and said.origins else ""
            if not name or name.startswith("@") or name in self.used:
                name = f"{short(type)}_{kernel}"
            self.names[kernel] = name
            self.used.add(name)
        return self.names[kernel]


class Watch:
    """The callbacks of one loaded function; hands on to the capture that is going on."""

    def __init__(self) -> None:
        self.constants = Constants()
        self.capture: Capture | None = None
        self.error: BaseException | None = None
        self._running: list[tuple[int, str]] = []

    def begin(self, event: Any) -> int:
        """A kernel or a phase begins."""
        self._running.append((event.compile_ids.id, event.event_id))
        return len(self._running)

    def end(self, event: Any, _interval: int) -> None:
        """It has ended."""
        ended = (event.compile_ids.id, event.event_id)
        if ended in self._running:
            del self._running[self._running.index(ended) :]

    def values(self, arrays: Sequence[Any], kind: str, ids: Any) -> None:
        """What a kernel reads or has written. Nothing may be raised into the runtime."""
        if self.error is not None or not self._running:
            return
        kernel, event = self._running[-1]
        if kernel != ids.id or not event.startswith(CALL):
            return
        executes = any(phase == _EXECUTE for _, phase in self._running)
        name = event.removeprefix(CALL)
        try:
            if name == _CONSTANT and kind == "output":
                for raw in arrays:
                    if raw is not None:
                        self.constants.add(kernel, seen(raw))
            elif executes and self.capture is not None and not name.startswith(_MEMORY):
                self.capture.values(kernel, name, kind, [r for r in arrays if r is not None])
        except BaseException as error:
            self.error = error

    def raise_error(self, name: str) -> None:
        """Raise what a callback failed with, for the asset of this name."""
        error = self.error
        self.error = None
        if isinstance(error, SyncpointError):
            raise error
        if error is not None:
            raise CaptureError(f"the values inside {name} to be read", one_line(error)) from error


class Capture:
    """Tells the recorder of every kernel of one execution."""

    def __init__(
        self,
        recorder: Recorder,
        constants: Constants,
        names: Names,
        program: Program | None,
        given: Mapping[str, Edge],
        values: Mapping[str, Array],
        device: str,
    ) -> None:
        self._recorder = recorder
        self._constants = constants
        self._names = names
        self._aligner = Aligner(program)
        self._given_edges = dict(given)
        self._device = device
        self._held = {place: list(held) for place, held in constants.held.items()}
        self._given = {
            (value.form, value.digest): name
            for name, value in ((n, of_array(a)) for n, a in values.items())
        }
        self._edges: list[list[Edge]] = []
        """By kernel in order of execution: its outputs."""
        self._read: list[Seen] = []
        self._began: int | None = None
        self._took: int | None = None
        """Nanoseconds of the kernel that has just run."""
        self._ties: list[Tie] = []
        self._last: dict[tuple[Form, int], Edge] = {}
        self.computed: Counter[str] = Counter()
        """Elements computed, by element type: the precision that was really in effect."""
        self.keys: dict[Edge, TensorKey] = {}
        self.aligned = 0
        self.unordered: list[str] = []
        """Ops whose outputs could not be told apart."""
        self.parameters: set[int] = set()
        """Constants that ops read as parameters."""
        self.meanings: dict[int, Quantization] = {}
        """Of those that are compressed weights."""
        self._rounded = Rounded()
        self.unclear: list[str] = []
        """Ops that make a weight in a way that cannot be said."""

    def lies(self, name: str, array: NDArray) -> None:
        """Where an input or state lies: caches of one size begin with the same bytes, and only
        their places tell them apart."""
        value = placed(array)
        if value is not None and value.address:
            held = _Held(value.form, value.digest, Tie(given=name))
            self._held.setdefault(value.address, []).append(held)

    @property
    def kernels(self) -> int:
        """How many were recorded."""
        return len(self._edges)

    def values(self, kernel: int, name: str, kind: str, raw: Sequence[Any]) -> None:
        """One callback of a kernel that computes."""
        now = perf_counter_ns()
        if kind == "input":
            self._read = [seen(r) for r in raw]
            self._ties = [self._tie(value) for value in self._read]
            # The kernel may write where it reads.
            several = short(name) == "split"
            self._read = [of_array(v.array.copy()) for v in self._read] if several else []
            # The kernel runs between the two callbacks; what they do themselves is not its time.
            self._began = perf_counter_ns()
        elif kind == "output" and raw:
            self._took = now - self._began if self._began is not None else None
            self._began = None
            self._kernel(kernel, name, [seen(r) for r in raw])

    def producer(self, array: Array) -> Edge | None:
        """The op whose output holds these values; the last one where there are several."""
        value = of_array(array)
        found = self._last.get((value.form, value.digest))
        if found is None and (value.form, value.digest) in self._given:
            return self._given_edges[self._given[value.form, value.digest]]
        return found

    def record_results(self, outputs: Mapping[str, Array], states: Mapping[str, Array]) -> None:
        """Record what the function gives and what its states hold after it, once it has run."""
        for position, (name, array) in enumerate(outputs.items()):
            edge = self.producer(array)
            self._recorder.tensor(
                edge.op if edge is not None else OpKey(name),
                array,
                role=Role.MODEL_OUTPUT,
                index=position,
                name=name,
                device=self._device,
                alias_of=str(self.keys.get(edge, "")) if edge is not None else "",
            )
        for name, array in states.items():
            edge = self.producer(array)
            self._recorder.tensor(
                OpKey(name),
                array,
                role=Role.STATE,
                name=name,
                device=self._device,
                alias_of=str(self.keys.get(edge, "")) if edge is not None else "",
            )
        for op in self.unordered:
            self._recorder.note(
                f"the outputs of {op} were not recorded: nothing tells which is which"
            )
        if self.unclear:
            self._recorder.note(
                f"what the integers of {len(self.unclear)} compressed weights mean could not be"
                f" said, such as of {self.unclear[0]}: what they cost is judged as if in floats"
            )
        if not self.kernels:
            raise CaptureError(
                "kernels reported by the Core AI runtime", "none", "use coreai-core 1.0.0b3"
            )

    def record_parameters(self, recorded: set[int]) -> None:
        """The constants that ops read; of each run once, whatever the number of its
        parts: those `recorded` before are left out, and the others are added to them."""
        whole = self._recorder.for_part(Part())
        for constant in sorted(self.parameters - recorded):
            known = self.meanings.get(constant)
            array = rows(self._constants.values[constant], known)
            whole.tensor(constant_key(constant), array, role=Role.PARAMETER, quantization=known)
        recorded |= self.parameters

    def _kernel(self, kernel: int, name: str, made: list[Seen]) -> None:
        outputs = _in_order(name, made, self._read)
        shapes = [value.array.shape for value in outputs or made]
        node, order = self._aligner.kernel(name, self._ties, shapes)
        self.aligned += node is not None
        said = self._said(kernel, node)
        type = name if name.startswith("coreai.") else f"coreai.{name}"
        ties = [self._ties[i] for i in order]
        op = Op(
            OpKey(self._names.of(kernel, name, said)),
            type,
            tuple(edge for tie in ties if (edge := self._edge(tie)) is not None),
            attributes=self._attributes(ties)
            | ({"part_of": node.step} if node and node.step else {})
            | ({"nanoseconds": self._took} if self._took is not None else {}),
            module=said.module,
            module_type=said.module_type,
            source=said.source,
            origins=said.origins,
        )
        key = self._recorder.op(op)
        self._edges.append([Edge(key, i) for i in range(len(made))])
        if outputs is None:
            self.unordered.append(str(key))
            return
        if short(name) in UNPACKING:
            self._unpacked(key, short(name), ties, outputs[0].array)
        rounded = self._rounded.step(node, self._plain(ties)) if node is not None else None
        for index, value in enumerate(outputs):
            self._output(key, index, value, rounded)

    def _plain(self, ties: Sequence[Tie]) -> list[Array]:
        """The constants that a kernel reads."""
        return [self._constants.values[tie.constant] for tie in ties if tie.constant >= 0]

    def _unpacked(self, key: OpKey, kernel: str, ties: Sequence[Tie], made: Array) -> None:
        read = [tie.constant for tie in ties if tie.constant >= 0]
        found = meaning(kernel, [self._constants.values[c] for c in read], made)
        if found is not None:
            self.meanings[read[found[0]]] = found[1]
        else:
            self.unclear.append(str(key))

    def _output(
        self, key: OpKey, index: int, value: Seen, meaning: Quantization | None = None
    ) -> None:
        edge = Edge(key, index)
        kept = self._recorder.tensor(
            key, value.array, index=index, device=self._device, quantization=meaning
        )
        self.keys[edge] = kept
        here = self._held.setdefault(value.address, [])
        here.append(_Held(value.form, value.digest, Tie(len(self._edges) - 1, index)))
        del here[:-_KEPT]
        self._last[value.form, value.digest] = edge
        kind = from_numpy(value.array.dtype).name
        if kind in FLOATS:
            self.computed[kind] += value.array.size

    def _tie(self, value: Seen) -> Tie:
        if value.address:
            for held in reversed(self._held.get(value.address, ())):
                if held.form == value.form and held.digest == value.digest:
                    return held.tie
        return Tie(given=self._given.get((value.form, value.digest), ""))

    def _edge(self, tie: Tie) -> Edge | None:
        if tie.given:
            return self._given_edges[tie.given]
        if tie.kernel >= 0:
            return self._edges[tie.kernel][tie.index]
        if tie.constant >= 0 and self._constants.attribute(tie.constant) is None:
            self.parameters.add(tie.constant)
            return Edge(constant_key(tie.constant), role=Role.PARAMETER)
        return None

    def _attributes(self, ties: Sequence[Tie]) -> dict[str, Any]:
        plain = [self._constants.attribute(t.constant) for t in ties if t.constant >= 0]
        found = [value for value in plain if value is not None]
        return {"constants": found} if found else {}

    def _said(self, kernel: int, node: Node | None) -> Debug:
        if node is not None and node.call is not None:
            return node.call
        return self._names.debug.get(kernel, NOTHING)


def record_inputs(
    recorder: Recorder,
    fed: Mapping[str, Array],
    states: Mapping[str, Array],
    given: frozenset[str],
) -> None:
    """Record what a function is given: its inputs, and what its states begin with."""
    for name, array in fed.items():
        recorder.tensor(OpKey(name), array, role=Role.MODEL_INPUT, name=name)
    for name, array in states.items():
        if name in given:
            # As an input it is fed again when the run serves as inputs.
            recorder.tensor(OpKey(name), array, role=Role.MODEL_INPUT, name=name)
        recorder.tensor(OpKey(name), array, role=Role.STATE, index=1, name=name)


def constant_key(kernel: int) -> OpKey:
    """What a constant is called: assets have no names for them."""
    return OpKey(f"constant_{kernel}")


def _in_order(name: str, made: list[Seen], read: Sequence[Seen]) -> list[Seen] | None:
    """The outputs of a kernel in the order of its results, which callbacks do not keep; None
    where nothing tells them apart."""
    if len(made) < 2:
        return made
    if short(name) != "split":
        return None
    return _pieces(made, read)


def _pieces(made: Sequence[Seen], read: Sequence[Seen]) -> list[Seen] | None:
    """The outputs of a split, found again in what was split: the bytes of each piece tell."""
    whole = [v.array for v in read if v.array.size == sum(m.array.size for m in made)]
    axes = [int(v.array) for v in read if v.array.ndim == 0 and v.array.dtype.kind in "iu"]
    sizes = [v.array for v in read if v.array.shape == (len(made),) and v.array.dtype.kind in "iu"]
    for array, axis, size in ((w, a, s) for w in whole for a in axes for s in sizes):
        if not array.ndim or not -array.ndim <= axis < array.ndim:
            continue
        if int(size.sum()) != array.shape[axis]:
            continue
        split = np.split(array, np.cumsum(size.astype(np.int64))[:-1], axis)
        ordered = _in_order_of(split, made)
        if ordered is not None:
            return ordered
    return None


def _in_order_of(pieces: Sequence[Array], made: Sequence[Seen]) -> list[Seen] | None:
    """The values in the order of the pieces that they hold; None where one holds none of them."""
    left = sorted(made, key=lambda value: value.address)
    ordered = []
    for piece in pieces:
        wanted = of_array(piece)
        same = [v for v in left if v.form == wanted.form and v.digest == wanted.digest]
        if same:
            ordered.append(same[0])
            left.remove(same[0])
    return None if left else ordered
