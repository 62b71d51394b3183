"""Elements of a result that count, where the map masks others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class KeptElements:
    """A result of which only some elements count; figures about it are made of those alone."""

    kept: NDArray[np.bool_] | None
    """Which elements count; None where all do."""

    def counted(self, values: Array) -> Array:
        """The elements that count."""
        return values if self.kept is None else values[self.kept]

    def without_masked(self, places: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The places that count among these."""
        return places if self.kept is None else places & self.kept

    def zero_masked(self, values: Array) -> Array:
        """The values with zeros where elements do not count."""
        return values if self.kept is None else np.where(self.kept, values, 0)
