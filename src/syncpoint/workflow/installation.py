"""Describe this installation for `doctor`: versions, runtimes with their options, dump formats,
plugins."""

from __future__ import annotations

import platform
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncpoint.errors import SyncpointWarning
from syncpoint.version import __version__

if TYPE_CHECKING:
    from syncpoint.runtimes.protocol import Option


@dataclass(frozen=True)
class RuntimeInfo:
    """A runtime, built in or of a plugin."""

    name: str
    version: str | None
    """None if its package is not installed."""
    extra: str
    """The extra that installs its package."""
    options: tuple[Option, ...] = ()
    cure: str = ""
    """How to install it."""


@dataclass(frozen=True)
class FormatInfo:
    """A supported dump format."""

    name: str
    is_written: bool
    """Whether `convert` can write it; all formats can be read."""


@dataclass(frozen=True)
class PluginInfo:
    """A matcher or a cause of another package."""

    kind: str
    """`matcher` or `cause`."""
    name: str
    package: str


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is installed, and what it can do."""

    version: str
    python: str
    platform: str
    kernel: str
    """The instruction set that the kernel uses."""
    runtimes: tuple[RuntimeInfo, ...]
    formats: tuple[FormatInfo, ...]
    plugins: tuple[PluginInfo, ...] = ()
    """The matchers and causes of other packages; their runtimes and formats are listed above."""
    left_out: tuple[str, ...] = ()
    """One line for each plugin that cannot be used."""


def describe_installation() -> Installation:
    """Describe what is installed; a runtime is loaded only to read its version."""
    with warnings.catch_warnings():
        # Unusable plugins are listed in `left_out`.
        warnings.simplefilter("ignore", SyncpointWarning)
        return _describe()


def _describe() -> Installation:
    from syncpoint.dumps.protocol import Saves
    from syncpoint.dumps.registry import iter_formats
    from syncpoint.metrics import _kernel
    from syncpoint.runtimes.registry import describe_installation, load_runtimes

    runtime_infos = []
    for runtime in load_runtimes():
        version = runtime.version()
        options = () if version is None else tuple(runtime.options())
        cure = describe_installation(runtime)
        runtime_infos.append(RuntimeInfo(runtime.name, version, runtime.extra, options, cure))
    plugins, left_out = _describe_plugins()
    return Installation(
        version=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        kernel=_kernel.isa(),
        runtimes=tuple(runtime_infos),
        formats=tuple(FormatInfo(dump.name, isinstance(dump, Saves)) for dump in iter_formats()),
        plugins=plugins,
        left_out=left_out,
    )


def _describe_plugins() -> tuple[tuple[PluginInfo, ...], tuple[str, ...]]:
    """The matchers and causes of other packages, and the plugins that cannot be used."""
    from syncpoint.diagnosis.registry import CAUSES
    from syncpoint.dumps.registry import FORMATS
    from syncpoint.matching.registry import MATCHERS
    from syncpoint.runtimes.registry import RUNTIMES

    seams: tuple[Any, ...] = (RUNTIMES, FORMATS, MATCHERS, CAUSES)
    usable = tuple(
        PluginInfo(seam.noun, plugin.name, seam.package_of(plugin.name))
        for seam in (MATCHERS, CAUSES)
        for plugin in seam.plugins()
    )
    return usable, tuple(str(bad) for seam in seams for bad in seam.bad_plugins())
