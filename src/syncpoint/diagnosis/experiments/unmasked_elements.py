"""Elements of a result that count if a map file masks others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class KeptElements:
    """A result with masked elements; figures are computed from the other elements only."""

    kept: NDArray[np.bool_] | None
    """Which elements count; None if all do."""

    def counted(self, values: Array) -> Array:
        """Return the elements that count."""
        return values if self.kept is None else values[self.kept]

    def without_masked(self, places: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the positions without the masked ones."""
        return places if self.kept is None else places & self.kept

    def zero_masked(self, values: Array) -> Array:
        """Return the values with zeros in masked positions."""
        return values if self.kept is None else np.where(self.kept, values, 0)
