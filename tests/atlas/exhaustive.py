"""What could be paired: tensors of two clean runs that hold the same numbers.

This search uses nothing of the matchers. Two tensors hold the same numbers if their sorted values
agree, which no permutation or reshape changes; integers are dequantized first. A target tensor may
also hold one of the equal pieces that a reference tensor is split into along an axis. Tensors of
one run that hold the same numbers are one class: it is found if one of them is paired.
"""

from dataclasses import dataclass

import numpy as np

from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Role

_MIN_DISTINCT_VALUES = 6
_QUANTILES = 48
_MAX_ELEMENTS = 1 << 20


@dataclass
class Reach:
    """How many classes of target tensors have an equal in the reference, and were found."""

    possible: int
    found: int
    missed: tuple[str, ...]
    """Names of target tensors of classes that were not found."""

    @property
    def share(self):
        return self.found / self.possible if self.possible else 1.0


def _values_of(run, tensor):
    """The numbers of a tensor in float64; None if it is no evidence."""
    if tensor.kept is not Kept.VALUES or not 2 <= tensor.count <= _MAX_ELEMENTS:
        return None
    if DTYPES[tensor.dtype].kind not in (Kind.FLOAT, Kind.INT):
        return None
    values = np.asarray(run.values(tensor)).astype(np.float64)
    quantization = tensor.quantization
    if quantization is None and DTYPES[tensor.dtype].kind is Kind.INT:
        return None
    if quantization is not None:
        if quantization.table or quantization.block > 1:
            return None
        scale = np.asarray(quantization.scale, np.float64)
        zero = np.asarray(quantization.zero_point, np.float64)
        if quantization.axis is not None and scale.size > 1:
            shape = [1] * values.ndim
            shape[quantization.axis] = -1
            scale = scale.reshape(shape)
            zero = zero.reshape(shape) if zero.size > 1 else zero
        values = (values - zero) * scale
    values = np.where(np.isfinite(values) & (np.abs(values) < 1e30), values, 0.0)
    if len(np.unique(values.ravel()[:4096])) < _MIN_DISTINCT_VALUES:
        return None
    return values


def _depends_on_inputs(run):
    """The ops whose results depend on an input of the model."""
    live = set()
    for op in run.ops:
        from_outside = any(edge.role in (Role.MODEL_INPUT, Role.STATE) for edge in op.inputs)
        if from_outside or any(e.role is Role.OUTPUT and e.op in live for e in op.inputs):
            live.add(op.key)
    return live


def _sorted_tensors(run):
    """The computed tensors of a run with their values, sorted."""
    live = _depends_on_inputs(run)
    first_part = min((t.key.part for t in run.tensors if t.key.role is Role.OUTPUT), default=None)
    for tensor in run.tensors:
        is_first = tensor.key.role is Role.OUTPUT and tensor.key.part == first_part
        if is_first and (not live or tensor.key.op in live):
            values = _values_of(run, tensor)
            if values is not None:
                yield tensor.key, values


class _Index:
    """Sorted tensors by size, with quantiles to find near ones fast."""

    def __init__(self):
        self._by_size = {}

    def add(self, label, ordered):
        self._by_size.setdefault(ordered.size, []).append((label, ordered, _quantiles(ordered)))

    def equals(self, ordered, tolerance):
        """Labels of tensors with the same numbers."""
        quantiles = _quantiles(ordered)
        size = np.linalg.norm(ordered) or 1.0
        limit = 4 * tolerance * (np.abs(quantiles).max() or 1.0)
        for label, other, near in self._by_size.get(ordered.size, ()):
            if np.abs(near - quantiles).max() <= limit + 1e-12 and (
                np.linalg.norm(other - ordered) <= tolerance * size
            ):
                yield label


def _quantiles(ordered):
    places = np.linspace(0, ordered.size - 1, min(_QUANTILES, ordered.size)).astype(int)
    return ordered[places]


def _pieces(values):
    """The equal pieces along each axis, for 2 to 8 pieces."""
    for axis, length in enumerate(values.shape):
        for count in (2, 3, 4, 6, 8):
            if length % count == 0 and length >= count:
                yield from np.split(values, count, axis)


def reach(comparison, target, reference, tolerance=1e-3):
    """The reach of a comparison of two clean runs that hold their values."""
    whole, pieces = _Index(), _Index()
    for key, values in _sorted_tensors(reference):
        whole.add(key, np.sort(values.ravel()))
        for piece in _pieces(values):
            if len(np.unique(piece.ravel()[:4096])) >= _MIN_DISTINCT_VALUES:
                pieces.add(key, np.sort(piece.ravel()))
    paired = {row.target.key for row in comparison.rows}
    classes = _Index()
    found, examples = {}, {}
    for key, values in _sorted_tensors(target):
        ordered = np.sort(values.ravel())
        own = next(iter(classes.equals(ordered, tolerance)), None)
        if own is None:
            if not any(True for index in (whole, pieces) for _ in index.equals(ordered, tolerance)):
                continue
            own = key
            classes.add(key, ordered)
            found[key], examples[key] = False, str(key)
        found[own] |= key in paired
    missed = tuple(examples[key] for key, is_found in found.items() if not is_found)
    return Reach(len(found), sum(found.values()), missed)
