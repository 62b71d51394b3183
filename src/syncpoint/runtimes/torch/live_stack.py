"""Where in a running model an op is called from: the module, and the lines of source."""

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
from syncpoint.runtimes.torch.node_metadata import of_the_user

_HERE = str(Path(__file__).parent) + "/"


class ModuleStack:
    """The modules that are being called, in the thread that entered it.

    The hooks are those of all modules at once: hooks of a module of its own would keep it from
    the fused paths that it takes without them.
    """

    def __init__(self, model: nn.Module) -> None:
        self._known = {id(m): (name, class_name(m)) for name, m in model.named_modules()}
        self._stack: list[tuple[str, str]] = []
        self._handles: list[Any] = []
        self._thread = 0

    @property
    def current(self) -> tuple[str, str]:
        """Dotted path and class name of the innermost module; a module that the model does not
        know by name counts as part of the one that calls it."""
        return self._stack[-1] if self._stack else ("", "")

    def __enter__(self) -> ModuleStack:
        self._thread = threading.get_ident()
        self._handles = [
            register_module_forward_pre_hook(self._enters),
            register_module_forward_hook(self._leaves, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _enters(self, module: nn.Module, _: object) -> None:
        if threading.get_ident() == self._thread:
            self._stack.append(self._known.get(id(module), self.current))

    def _leaves(self, _module: nn.Module, _args: object, _result: object) -> None:
        if threading.get_ident() == self._thread and self._stack:
            self._stack.pop()


def class_name(module: nn.Module) -> str:
    """The name of a module's class; of a scripted one, that of the class it was made from."""
    return getattr(module, "original_name", None) or type(module).__name__


Here = tuple[tuple[Frame, ...], tuple[str, str] | None]
"""Source stack, and path and class of a module where the stack tells them."""
Stack = Callable[[CodeType], Here]
"""Tells where the op that is about to run is called from, down from a call of a function."""


def python_stack(below: CodeType) -> Here:
    """The lines of Python that are being executed, innermost last; modules are not told."""
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not below:
        code = frame.f_code
        if not code.co_filename.startswith(("<", _HERE)):
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return of_the_user(found[::-1]), None
