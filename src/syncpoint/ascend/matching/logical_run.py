"""A dump of a device as its model means it: tensors in their original shapes, without padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_facts import tensor_facts
from syncpoint.ascend.matching.device_layouts import to_logical
from syncpoint.ascend.matching.device_views import PLAIN
from syncpoint.matching.views import View
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.reader import Run


def logical(device: Run) -> Run:
    """The same run with every tensor whose layout is known in its original shape."""
    tensors: list[Tensor] = []
    views: dict[TensorKey, View] = {}
    for tensor in device.tensors:
        facts = tensor_facts(device, tensor)
        said = facts.get("original_shape")
        original = tuple(said) if isinstance(said, list | tuple) else ()
        found = None
        if tensor.layout not in PLAIN:
            found = to_logical(tensor.shape, tensor.layout, original, _sub_format(facts))
        if found is None or not found.view:
            tensors.append(tensor)
            continue
        views[tensor.key] = View(found.view)
        axes = "" if found.axes in PLAIN else found.axes
        tensors.append(replace(tensor, shape=found.shape, layout=axes))
    if not views:
        return device
    return Run(device.info, device.ops, tensors, _LogicalStore(device, views), path=device.path)


def _sub_format(facts: dict[str, Any]) -> int:
    return int(facts.get("sub_format", 0))


class _LogicalStore:
    """Values of a device seen through the views of their layouts."""

    def __init__(self, device: Run, views: dict[TensorKey, View]) -> None:
        self._device = device
        self._views = views

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the device's file has one."""
        stored = self._device.tensor(tensor.key)
        return stored is not None and self._device.has_checksum(stored)

    def verify(self, tensor: Tensor, content: object = None) -> None:
        """Check what lies in the device's file."""
        stored = self._device.tensor(tensor.key)
        if stored is not None:
            self._device.verify(stored)

    def read(self, tensor: Tensor) -> NDArray[Any]:
        """All elements in the original shape."""
        stored = self._device.tensor(tensor.key)
        assert stored is not None
        values = self._device.values(stored)
        view = self._views.get(tensor.key)
        if view is None:
            return values
        seen = view.apply(values)
        seen.flags.writeable = False
        return seen

    def window(self, tensor: Tensor, start: int, stop: int) -> NDArray[Any]:
        """Some elements of the row-major order of the original shape."""
        if tensor.key not in self._views:
            stored = self._device.tensor(tensor.key)
            assert stored is not None
            return self._device.window(stored, start, stop)
        window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window
