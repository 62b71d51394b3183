"""The preview of an ONNX file: what it says of itself, without its weights and without a
session."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from math import prod
from pathlib import Path

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import FLOATS
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.element_types import CODES, NAMES
from syncpoint.runtimes.onnx.inputs import input_spec_of_proto
from syncpoint.runtimes.protocol import ModelPreview

_LARGEST = 512 << 20
"""Files beyond this are not parsed just to be described."""
_FLOAT_CODES = frozenset(CODES[name] for name in FLOATS)


def preview_file(path: Path) -> ModelPreview | None:
    """What the file says; None where it cannot be read here or is too large for a preview."""
    if find_spec("onnx") is None or path.stat().st_size > _LARGEST:
        return None
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise FormatError(f"{path.name} as ONNX", one_line(error)) from error
    graph = model.graph
    weights: Counter[int] = Counter()
    for weight in graph.initializer:
        if weight.data_type in _FLOAT_CODES:
            weights[weight.data_type] += prod(weight.dims)
    given = {weight.name for weight in graph.initializer}
    declared = [value for value in graph.input if value.name not in given]
    codes = (value.type.tensor_type.elem_type for value in declared)
    kinds = weights or Counter(code for code in codes if code in _FLOAT_CODES)
    precision = NAMES[kinds.most_common(1)[0][0]] if kinds else ""
    if not len(graph.node):
        raise FormatError(f"{path.name} as ONNX", "no ops in it")
    return ModelPreview(
        len(graph.node), precision, tuple(input_spec_of_proto(value) for value in declared)
    )
