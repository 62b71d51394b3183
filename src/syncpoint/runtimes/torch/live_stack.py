"""Where a running model calls an op: the live stack of modules and of Python lines."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from syncpoint.run.model import Frame
from syncpoint.runtimes.torch.node_metadata import select_user_frames

_OWN_FOLDER = str(Path(__file__).parent) + "/"


class ModuleStack:
    """The modules that are being called, in the thread that entered this object.

    It uses the global hooks of torch: a module with hooks of its own does not take fused paths.
    """

    def __init__(self, model: nn.Module) -> None:
        self._module_by_id = {id(m): (name, class_name(m)) for name, m in model.named_modules()}
        self._stack: list[tuple[str, str]] = []
        self._handles: list[Any] = []
        self._thread = 0

    @property
    def current(self) -> tuple[str, str]:
        """Dotted path and class name of the innermost module.

        A module without a name in the model counts as part of the module that calls it.
        """
        return self._stack[-1] if self._stack else ("", "")

    def __enter__(self) -> ModuleStack:
        self._thread = threading.get_ident()
        self._handles = [
            register_module_forward_pre_hook(self._on_enter),
            register_module_forward_hook(self._on_leave, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _on_enter(self, module: nn.Module, _: object) -> None:
        if threading.get_ident() == self._thread:
            self._stack.append(self._module_by_id.get(id(module), self.current))

    def _on_leave(self, _module: nn.Module, _args: object, _result: object) -> None:
        if threading.get_ident() == self._thread and self._stack:
            self._stack.pop()


def class_name(module: nn.Module) -> str:
    """The class name of a module; for TorchScript that of the original class."""
    return getattr(module, "original_name", None) or type(module).__name__


CallSite = tuple[tuple[Frame, ...], tuple[str, str] | None]
"""Source stack, and path and class of the module where the stack shows them."""
StackReader = Callable[[CodeType], CallSite]
"""Reads the stack of the op about to run, inside the call of the given code."""


def read_python_stack(outer_code: CodeType) -> CallSite:
    """The Python lines being executed inside `outer_code`, innermost last; without modules."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not outer_code:
        code = frame.f_code
        if not code.co_filename.startswith(("<", _OWN_FOLDER)):
            frames.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return select_user_frames(frames[::-1]), None
