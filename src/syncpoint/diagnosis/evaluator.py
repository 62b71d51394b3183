"""The reference's ops without its model: what we know of them ourselves, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from syncpoint.errors import Unsupported
from syncpoint.run.model import Edge
from syncpoint.run.reader import Run
from syncpoint.runtimes.protocol import Region

Array = NDArray[Any]


class NumpyEvaluator:
    """Runs pieces of a recorded model from its ops, attributes and parameters alone."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None = None,
    ) -> Sequence[Array | None]:
        """The region's outputs; Unsupported where an op of it is not known."""
        raise Unsupported("a model whose ops can be run", "a recording")
