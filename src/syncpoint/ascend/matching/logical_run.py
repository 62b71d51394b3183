"""Present a device dump as a run with tensors in their original shapes, without padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_file import tensor_facts
from syncpoint.ascend.matching.device_layouts import to_logical
from syncpoint.ascend.matching.device_views import PLAIN_LAYOUTS
from syncpoint.matching.views import View
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.reader import Run


def logical_run(device: Run) -> Run:
    """The run with its tensors in their original shapes, where the layout is known."""
    tensors: list[Tensor] = []
    views: dict[TensorKey, View] = {}
    for tensor in device.tensors:
        facts = tensor_facts(device, tensor)
        shape = facts.get("original_shape")
        original = tuple(shape) if isinstance(shape, list | tuple) else ()
        logical = None
        if tensor.layout not in PLAIN_LAYOUTS:
            sub_format = int(facts.get("sub_format", 0))
            logical = to_logical(tensor.shape, tensor.layout, original, sub_format)
        if logical is None or not logical.view:
            tensors.append(tensor)
            continue
        views[tensor.key] = View(logical.view)
        axes = "" if logical.axes in PLAIN_LAYOUTS else logical.axes
        tensors.append(replace(tensor, shape=logical.shape, layout=axes))
    if not views:
        return device
    return Run(device.info, device.ops, tensors, _LogicalStore(device, views), path=device.path)


class _LogicalStore:
    """The values of a device through the views of their layouts."""

    def __init__(self, device: Run, views: dict[TensorKey, View]) -> None:
        self._device = device
        self._views = views

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the file of the device has a checksum."""
        stored = self._device.tensor(tensor.key)
        return stored is not None and self._device.has_checksum(stored)

    def verify(self, tensor: Tensor, content: object = None) -> None:
        """Check the values in the file of the device."""
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
        logical = view.apply(values)
        logical.flags.writeable = False
        return logical

    def window(self, tensor: Tensor, start: int, stop: int) -> NDArray[Any]:
        """Some elements, in the row-major order of the original shape."""
        if tensor.key not in self._views:
            stored = self._device.tensor(tensor.key)
            assert stored is not None
            return self._device.window(stored, start, stop)
        window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window
