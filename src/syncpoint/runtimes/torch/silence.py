"""Suppress warnings, logs and prints of torch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def silence_torch() -> Iterator[None]:
    """Suppress warnings, logs and prints of torch.export: errors are reported by Syncpoint."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Disable all logging."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
