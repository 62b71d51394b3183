"""Plugins that other packages add through entry points: find, load, check them; skip failing ones;
turn their exceptions into errors that name the plugin.

Each of the four seams (runtimes, dump formats, matchers, causes) is one `Seam`. A plugin that
cannot be used is reported in one line and skipped; nothing else fails. Nothing is scanned or
imported before a member of the seam is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from syncpoint.errors import InputError, SyncpointError, SyncpointWarning

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OWN_PACKAGE = "syncpoint"
_MAX_REASON_CHARS = 300

Member = TypeVar("Member")


@dataclass(frozen=True)
class BadPlugin:
    """A plugin that cannot be used, and the reason."""

    noun: str
    """The kind of plugin: `runtime`, `dump format`, `matcher` or `cause`."""
    name: str
    package: str
    """The package that declares it; several if they declare the same name."""
    reason: str

    def __str__(self) -> str:
        return (
            f"the {self.noun} {self.name} of {self.package} is skipped: {self.reason};"
            " upgrade or remove the package"
        )


class Seam(Generic[Member]):
    """The members of one seam: built-in ones and plugins.

    `protocol` lists the attributes that a member must have; `built_in` maps names to
    `module:attribute`, in order. A built-in name wins over a plugin of the same name.
    """

    def __init__(
        self, group: str, noun: str, protocol: type, api: int, built_in: Mapping[str, str]
    ) -> None:
        self.group, self.noun = group, noun
        self.built_in = dict(built_in)
        self._protocol, self._api = protocol, api
        self._members: dict[str, Member] = {}
        """Built-in members and plugins that were loaded, by name."""
        self._entries: dict[str, EntryPoint] | None = None
        """Usable entry points by name; None until they are scanned."""
        self._failed: list[EntryPoint] = []
        self._bad_plugins: list[BadPlugin] = []
        self._reported = 0

    def names(self) -> tuple[str, ...]:
        """The names of all members, without loading any."""
        return (*self.built_in, *self._scan())

    def load(self, name: str) -> Member:
        """Load the member called `name`; raise InputError if there is none or it is unusable."""
        if name not in self._members:
            if name in self.built_in:
                self._members[name] = _instantiate(_import_attribute(self.built_in[name]))
            else:
                self._load_plugin(name)
        if name in self._members:
            return self._members[name]
        for bad in self._bad_plugins:
            if bad.name != name:
                continue
            raise InputError(
                f"the {self.noun} {name} of {bad.package} cannot be used: {bad.reason}",
                cure="upgrade or remove the package",
            )
        available = ", ".join(self.names())
        raise InputError(f"there is no {self.noun} {name!r}", cure=f"use one of: {available}")

    def built_in_members(self) -> Iterator[Member]:
        """Iterate over the built-in members in order; each is loaded when it is reached."""
        for name in self.built_in:
            yield self.load(name)

    def plugins(self) -> tuple[Member, ...]:
        """The usable plugins in the order of their names; warns once about each unusable one."""
        for name in self._scan():
            self._load_plugin(name)
        while self._reported < len(self._bad_plugins):
            self._reported += 1
            warnings.warn(
                str(self._bad_plugins[self._reported - 1]), SyncpointWarning, stacklevel=3
            )
        return tuple(self._members[name] for name in self._scan() if name in self._members)

    def bad_plugins(self) -> tuple[BadPlugin, ...]:
        """The plugins that cannot be used; every plugin is loaded to find them."""
        for name in self._scan():
            self._load_plugin(name)
        return tuple(self._bad_plugins)

    def package_of(self, name: str) -> str:
        """The package that a plugin comes from."""
        return _package_name(self._scan()[name])

    def ask(self, name: str, question: Callable[[], bool]) -> bool:
        """Ask a member a yes-no question; a plugin that raises counts as no, with a warning."""
        try:
            return question()
        except Exception as error:
            self.report_failure(name, error)
            return False

    def report_failure(self, name: str, error: BaseException) -> None:
        """Warn that a plugin raised and is skipped; the error of a member of this package is a bug
        and is raised."""
        if name not in self._scan() or self._is_own(name):
            raise error
        text = f"the {self.noun} {name} of {self.package_of(name)} raised {_describe(error)}"
        warnings.warn(f"{text}; it is skipped", SyncpointWarning, stacklevel=3)

    @contextmanager
    def contain_errors(self, name: str, kind: type[SyncpointError], task: str) -> Iterator[None]:
        """Turn an exception of a plugin into a SyncpointError of type `kind`; an exception of a
        member of this package is a bug and passes through. `task` begins with "to"."""
        try:
            yield
        except SyncpointError:
            raise
        except Exception as error:
            if name not in self._scan() or self._is_own(name):
                raise
            package = self.package_of(name)
            raise kind(
                f"the {self.noun} {name} of {package} failed {task}, because it raised"
                f" {_describe(error)}"
            ) from error

    def forget_plugins(self) -> None:
        """Forget the installed packages, so that they are scanned again."""
        self._entries = None
        self._members.clear()
        self._failed.clear()
        self._bad_plugins.clear()
        self._reported = 0

    def _is_own(self, name: str) -> bool:
        return _package_name(self._scan()[name]) == _OWN_PACKAGE

    def _scan(self) -> dict[str, EntryPoint]:
        if self._entries is None:
            by_name: dict[str, list[EntryPoint]] = {}
            for entry in installed_entry_points(self.group):
                by_name.setdefault(entry.name, []).append(entry)
            self._entries = {}
            for name in sorted(by_name):
                chosen = self._choose(name, by_name[name])
                if chosen is not None:
                    self._entries[name] = chosen
        return self._entries

    def _choose(self, name: str, entries: list[EntryPoint]) -> EntryPoint | None:
        """Choose the entry point for a name. If two packages declare the same name, neither is
        used: the choice would depend on the order of installation."""
        own = [entry for entry in entries if _package_name(entry) == _OWN_PACKAGE]
        others = [entry for entry in entries if entry not in own]
        if name in self.built_in or own:
            if others:
                self._skip(name, others, f"a built-in {self.noun} has this name")
            return own[0] if own and name not in self.built_in else None
        if len({(_package_name(entry), entry.value) for entry in entries}) > 1:
            self._skip(name, entries, f"{len(entries)} entry points have this name")
            return None
        return entries[0]

    def _skip(self, name: str, entries: list[EntryPoint], reason: str) -> None:
        packages = " and ".join(sorted({_package_name(entry) for entry in entries}))
        self._bad_plugins.append(BadPlugin(self.noun, name, packages, reason))

    def _load_plugin(self, name: str) -> None:
        entry = self._scan().get(name)
        if entry is None or name in self._members or entry in self._failed:
            return
        try:
            self._members[name] = self._load_entry(entry)
        except (Exception, SystemExit) as error:
            self._failed.append(entry)
            is_ours = isinstance(error, _UnusablePluginError)
            reason = str(error) if is_ours else f"it cannot be loaded: {_describe(error)}"
            self._skip(name, [entry], reason)

    def _load_entry(self, entry: EntryPoint) -> Any:
        """Load an entry point and check that it follows the protocol."""
        loaded = entry.load()
        declared = getattr(loaded, "API", None)
        if declared is None:
            raise _UnusablePluginError(f"it declares no API; this version takes API = {self._api}")
        if declared != self._api:
            raise _UnusablePluginError(
                f"it declares API = {declared!r}; this version takes {self._api}"
            )
        member = _instantiate(loaded)
        missing = [name for name in _members_of(self._protocol) if not hasattr(member, name)]
        if missing:
            raise _UnusablePluginError(f"it lacks {', '.join(missing)}")
        for name in _methods_of(self._protocol):
            if not callable(getattr(member, name)):
                raise _UnusablePluginError(f"its {name} is not a method")
        if member.name != entry.name:
            raise _UnusablePluginError(f"its name is {member.name!r}, not that of its entry point")
        return member


class _UnusablePluginError(Exception):
    """A plugin that does not follow the protocol."""


def installed_entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group in all installed packages."""
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


def _import_attribute(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _instantiate(loaded: Any) -> Any:
    return loaded() if isinstance(loaded, type) else loaded


def _package_name(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _members_of(protocol: type) -> list[str]:
    names = (*get_annotations(protocol), *vars(protocol))
    return [name for name in names if not name.startswith("_")]


def _methods_of(protocol: type) -> list[str]:
    return [name for name in _members_of(protocol) if callable(vars(protocol).get(name))]


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())[:_MAX_REASON_CHARS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
