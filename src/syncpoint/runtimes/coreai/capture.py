"""One execution of a function on its way into a run, as the runtime's callbacks tell of it.

The profiler says which kernel runs; the logger shows what it reads before it runs and what it
has written after. Kernels that only hand out memory are left out: what is in it is whatever was
there before. A value is known again by its place in memory, its form and its bytes, all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from coreai.runtime import NDArray

from syncpoint.errors import CaptureError
from syncpoint.run.dtypes import FLOATS, from_numpy
from syncpoint.run.model import Edge, Op, OpKey, Part, Quantization, Role, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.coreai.arrays import Seen, of_array, placed, seen
from syncpoint.runtimes.coreai.asset_constants import Constants, Form, Held, constant_key
from syncpoint.runtimes.coreai.debug_info import NOTHING, Debug
from syncpoint.runtimes.coreai.kernel_names import Names, short
from syncpoint.runtimes.coreai.kernel_to_op import Aligner, Tie
from syncpoint.runtimes.coreai.output_order import order_outputs
from syncpoint.runtimes.coreai.program import Node, Program
from syncpoint.runtimes.coreai.quantization import UNPACKING, Rounded, meaning, rows
from syncpoint.runtimes.protocol import Array

_KEPT = 8
"""How many values that lay at one place are remembered."""


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
            held = Held(value.form, value.digest, Tie(given=name))
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
        outputs = order_outputs(name, made, self._read)
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
        here.append(Held(value.form, value.digest, Tie(len(self._edges) - 1, index)))
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
