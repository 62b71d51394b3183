"""Pieces of a program on given values, with all floating-point arithmetic in one type."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.errors import InputError, SyncpointError, Unsupported
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import Array, Region, Tree
from syncpoint.runtimes.torch.arrays import (
    describe,
    describe_dtype,
    is_float_name,
    to_numpy,
    to_torch,
    torch_dtype,
)
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.node_metadata import type_of
from syncpoint.runtimes.torch.op_in_dtype import call, cast, check
from syncpoint.runtimes.torch.program import AMBIGUOUS, Program

_CACHE_BYTES = 512 << 20
"""Cast parameters are kept up to here; ops of one region share them, and so do neighbours."""


class Evaluator:
    """Runs regions; holds parameters in the types they were last asked for."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Any, torch.Tensor] = OrderedDict()
        self._cached_bytes = 0

    def parameters_of(self, program: Program, region: Region) -> list[OpKey]:
        """The parameters that the region's ops read, each once."""
        found: dict[OpKey, None] = {}
        for key in region.ops:
            for edge in program.edges.inputs(program.nodes[key.op]):
                if edge.role is Role.PARAMETER:
                    found[edge.op] = None
        return list(found)

    def evaluate(
        self,
        program: Program,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None,
    ) -> list[Array | None]:
        """The region's outputs in their order."""
        if not is_float_name(dtype):
            raise InputError("a floating-point type to evaluate in", repr(dtype))
        wide = torch_dtype(dtype)
        default = torch.get_default_dtype()
        # Factories and divisions of integers give the default type.
        torch.set_default_dtype(wide)
        try:
            pieces = _Pieces(self, program, wide, parameter_dtype)
            return pieces.run(region, inputs)
        finally:
            torch.set_default_dtype(default)

    def run_all(
        self, program: Program, given: Mapping[Edge, torch.Tensor], ledger: Ledger
    ) -> list[tuple[Edge | None, torch.Tensor | None]]:
        """Run a whole program in float64 and record every op; gives its results."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return _Pieces(self, program, torch.float64, None).run_all(given, ledger)
        finally:
            torch.set_default_dtype(default)

    def parameter(
        self, program: Program, edge: Edge, dtype: torch.dtype, rounded_to: str | None
    ) -> torch.Tensor:
        """The model's own parameter in `dtype`, rounded to another type before if asked."""
        value = program.parameter(edge)
        if not value.is_floating_point() and not value.is_complex():
            return value
        if rounded_to is None and cast(value, dtype) is value:
            return value
        key = (id(value), value._version, dtype, rounded_to)
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
            return found
        narrow = value if rounded_to is None else cast(value, torch_dtype(rounded_to))
        made = cast(narrow.detach(), dtype)
        if made.nbytes <= _CACHE_BYTES:
            self._cache[key] = made
            self._cached_bytes += made.nbytes
            while self._cached_bytes > _CACHE_BYTES:
                _, dropped = self._cache.popitem(last=False)
                self._cached_bytes -= dropped.nbytes
        return made


class _Pieces:
    """One evaluation."""

    def __init__(
        self, evaluator: Evaluator, program: Program, dtype: torch.dtype, rounded_to: str | None
    ) -> None:
        self._evaluator = evaluator
        self._program = program
        self._dtype = dtype
        self._rounded_to = rounded_to
        self._values: dict[Edge, Any] = {}
        self._given_parameters: dict[Edge, torch.Tensor] = {}

    def run(self, region: Region, inputs: Mapping[Edge, Array]) -> list[Array | None]:
        program = self._program
        nodes = [(key, program.nodes[key.op]) for key in region.ops]
        for _, node in nodes:
            check(node)
        self._given_parameters = {
            edge: self._cast(to_torch(value))
            for edge, value in inputs.items()
            if edge.role is Role.PARAMETER
        }
        given = {
            edge: self._given(edge, value)
            for edge, value in inputs.items()
            if edge.role is not Role.PARAMETER
        }
        self._values.update(given)
        reads = Counter(e for _, node in nodes for e in program.edges.inputs(node))
        reads.update(region.outputs)
        rounded = torch_dtype(self._rounded_to) if self._rounded_to is not None else None
        for key, node in nodes:
            try:
                result = call(node, self._fetch, self._dtype, rounded)
            except SyncpointError:
                raise
            except Exception as error:
                raise Unsupported(
                    f"{key} ({type_of(node)}) to run on its own in {describe_dtype(self._dtype)}",
                    one_line(error),
                ) from error
            for index, value in enumerate(pytree.tree_leaves(result)):
                self._values.setdefault(Edge(key, index), value)
            for edge in program.edges.inputs(node):
                reads[edge] -= 1
                if not reads[edge]:
                    self._values.pop(edge, None)
        lent = {v.untyped_storage().data_ptr() for v in given.values()}
        return [self._output(edge, lent) for edge in region.outputs]

    def run_all(
        self, given: Mapping[Edge, torch.Tensor], ledger: Ledger
    ) -> list[tuple[Edge | None, torch.Tensor | None]]:
        program = self._program
        self._values = {edge: self._given(edge, value) for edge, value in given.items()}
        results = _results(program)
        reads = Counter(e for n in program.nodes.values() for e in program.edges.inputs(n))
        reads.update(edge for edge in results if edge is not None)
        for name, node in program.nodes.items():
            check(node)
            inputs = program.edges.inputs(node)
            key = ledger.op(program.plan(node).op)
            try:
                result = call(node, self._fetch, self._dtype)
            except SyncpointError:
                raise
            except Exception as error:
                raise Unsupported(f"{name} to run in float64", one_line(error)) from error
            leaves = pytree.tree_leaves(result)
            for index, value in enumerate(leaves):
                self._values.setdefault(Edge(program.edges.key(name), index), value)
            ledger.results(key, leaves, ())
            for edge in inputs:
                reads[edge] -= 1
                if not reads[edge]:
                    self._values.pop(edge, None)
        return [(edge, self._values.get(edge) if edge else None) for edge in results]

    def _given(self, edge: Edge, array: Array | torch.Tensor) -> torch.Tensor:
        """A value from outside, in the kind of type and the memory layout the op is used to."""
        value = array if isinstance(array, torch.Tensor) else to_torch(array)
        seen = self._program.expected(edge)
        if seen is None:
            return cast(value, self._dtype)
        if seen.is_floating_point() or seen.is_complex():
            value = cast(value if _is_real(value) else value.to(self._dtype), self._dtype)
        elif seen.dtype == torch.bool:
            value = value != 0 if value.dtype != torch.bool else value
        elif value.dtype != seen.dtype:
            value = (value.round() if value.is_floating_point() else value).to(seen.dtype)
        value = _laid_out(value, seen)
        # Even without gradients matmul chooses its kernel by this flag.
        learns = edge in self._program.observed.learns or seen.requires_grad
        return value.requires_grad_() if learns and _is_real(value) else value

    def _cast(self, value: torch.Tensor) -> torch.Tensor:
        """A given parameter in the type of this evaluation, rounded before if asked."""
        if not _is_real(value):
            return value
        if self._rounded_to is not None:
            value = cast(value, torch_dtype(self._rounded_to))
        return cast(value, self._dtype)

    def _parameter(self, edge: Edge) -> torch.Tensor:
        if edge in self._given_parameters:
            return self._given_parameters[edge]
        return self._evaluator.parameter(self._program, edge, self._dtype, self._rounded_to)

    def _fetch(self, node: Node) -> Tree:
        edge = self._program.edges.of(node)
        if edge is not None and edge.role is Role.PARAMETER:
            return self._parameter(edge)
        if edge is not None and edge in self._values:
            return self._values[edge]
        seen = node.meta.get("val")
        if isinstance(seen, (list, tuple)):
            key = self._program.edges.key(node.name)
            return [self._values[Edge(key, i)] for i in range(len(seen))]
        if node.name in self._program.observed.scalars:
            number = self._program.observed.scalars[node.name]
            if number is AMBIGUOUS:
                raise Unsupported(
                    "numbers that are the same in every run", f"{node.name}, which depends on data"
                )
            return number
        raise InputError(
            f"values for {edge.op if edge else node.name}, which the region reads", "none"
        )

    def _output(self, edge: Edge, lent: set[int]) -> Array | None:
        if edge.role is Role.PARAMETER:
            value: Any = self._parameter(edge)
        elif edge in self._values:
            value = self._values[edge]
        else:
            raise InputError(f"{edge.op} output {edge.index} to be of the region", "it is not")
        if not isinstance(value, torch.Tensor):
            return None
        # The caller's memory may go away; what is a view of it gets memory of its own.
        shared = edge.role is Role.PARAMETER or value.untyped_storage().data_ptr() in lent
        return to_numpy(value.clone() if shared else value)


def _results(program: Program) -> list[Edge | None]:
    last = next(iter(reversed(program.graph.nodes)))
    leaves = pytree.tree_leaves(last.args[0], is_leaf=lambda v: isinstance(v, Node))
    return [program.edges.of(v) if isinstance(v, Node) else None for v in leaves]


def choose(
    programs: Sequence[Program],
    region: Region,
    inputs: Mapping[Edge, Array],
    wanted: Program | None,
) -> Program:
    """The program that has these ops and these shapes; `wanted` where it does."""
    if not programs:
        raise InputError("a session that has seen inputs", "none yet", "call run or prepare before")
    last = wanted or programs[-1]
    for key in region.ops:
        if not any(_node(program, key) for program in programs):
            what = "inside a sub-graph" if key.path else "which the model does not have"
            raise Unsupported("an op that can be run on its own", f"{key}, {what}")
    fitting = [
        program
        for program in programs
        if all(_node(program, key) for key in region.ops)
        and not any(_misfit(program, edge, value) for edge, value in inputs.items())
    ]
    if not fitting:
        misfits = (_misfit(last, edge, value) for edge, value in inputs.items())
        expected, found = next((m for m in misfits if m), ("ops of one graph", "ops of several"))
        raise InputError(expected, found)
    if wanted in fitting:
        return wanted
    for key in region.ops:
        # Sizes are written into the ops, so an op without inputs fits several graphs.
        if len({_said(program, key) for program in fitting}) > 1:
            raise Unsupported(
                f"{key} to mean the same in all samples",
                f"{len(fitting)} samples of different shapes",
                "name the part of the run",
            )
    return fitting[-1]


def _said(program: Program, key: OpKey) -> str:
    node = program.nodes[key.op]
    return f"{node.args} {node.kwargs}"


def _is_real(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _node(program: Program, key: OpKey) -> Node | None:
    here = not key.path and key.graph == program.edges.graph
    return program.nodes.get(key.op) if here else None


def _misfit(program: Program, edge: Edge, array: Array) -> tuple[str, str] | None:
    """What is wrong with the shape of a value for an edge, as expected and found."""
    seen = program.expected(edge)
    if seen is None or any(type(n) is not int for n in seen.shape):
        return None
    if tuple(seen.shape) == tuple(array.shape):
        return None
    return f"{edge.op} {edge.role} as {describe(seen)}", f"shape {list(array.shape)}"


def _laid_out(value: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """The same values with the strides the op saw: kernels may round by layout.

    Where a value was expanded the given one may differ along that axis, and stays dense.
    """
    strides = seen.stride()
    # A size that depends on data is no int.
    if any(type(n) is not int for n in (*seen.shape, *strides)) or value.shape != seen.shape:
        return value
    if not all(s > 0 for s in strides):
        return value
    if value.stride() == strides or not value.numel():
        return value
    order = sorted(range(value.dim()), key=lambda i: strides[i])
    reach = 1
    for axis in order:
        if value.shape[axis] > 1:
            if strides[axis] < reach:
                return value
            reach = strides[axis] * (value.shape[axis] - 1) + reach
    placed = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return placed.copy_(value)
