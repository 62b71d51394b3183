"""Plugins: what other packages add to Syncpoint through entry points.

Each of the four seams (runtimes, dump formats, matchers, causes) is one `Seam`. A plugin that
cannot be used is named in one line and left out; nothing else fails. Nothing is scanned or
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
_MAX_REASON_LENGTH = 300

Member = TypeVar("Member")


@dataclass(frozen=True)
class BadPlugin:
    """A plugin that cannot be used, and why."""

    noun: str
    """What kind of plugin it is: `runtime`, `dump format`, `matcher` or `cause`."""
    name: str
    package: str
    """The package that declares it; several where they declare the same name."""
    reason: str

    def __str__(self) -> str:
        return (
            f"the {self.noun} {self.name} of {self.package} is left out: {self.reason};"
            " upgrade or remove the package"
        )


class Seam(Generic[Member]):
    """The members of one seam: those built in, and those that packages add.

    `protocol` lists what a member must have; `built_in` maps names to `module:attribute`, in
    order. A built-in name wins over a plugin of the same name.
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
        """Usable entry points by name, once they were scanned."""
        self._failed: list[EntryPoint] = []
        self._bad: list[BadPlugin] = []
        self._reported = 0

    def names(self) -> tuple[str, ...]:
        """The names of all members, without loading any."""
        return (*self.built_in, *self._scan())

    def load(self, name: str) -> Member:
        """The member called `name`; one that does not exist or cannot be used is an InputError."""
        if name not in self._members:
            if name in self.built_in:
                self._members[name] = _instance(_attribute(self.built_in[name]))
            else:
                self._load_plugin(name)
        if name in self._members:
            return self._members[name]
        for bad in self._bad:
            if bad.name != name:
                continue
            raise InputError(
                f"the {self.noun} {name} of {bad.package} to be usable",
                bad.reason,
                "upgrade or remove the package",
            )
        known = ", ".join(self.names())
        raise InputError(f"a {self.noun}", repr(name), f"these are known: {known}")

    def built_in_members(self) -> Iterator[Member]:
        """The members of this package in order, each loaded when it is its turn."""
        for name in self.built_in:
            yield self.load(name)

    def plugins(self) -> tuple[Member, ...]:
        """The usable plugins in the order of their names; warns once of each that is not."""
        for name in self._scan():
            self._load_plugin(name)
        while self._reported < len(self._bad):
            self._reported += 1
            warnings.warn(str(self._bad[self._reported - 1]), SyncpointWarning, stacklevel=3)
        return tuple(self._members[name] for name in self._scan() if name in self._members)

    def bad_plugins(self) -> tuple[BadPlugin, ...]:
        """The plugins that are left out; each is loaded to find out."""
        for name in self._scan():
            self._load_plugin(name)
        return tuple(self._bad)

    def package_of(self, name: str) -> str:
        """The package that a plugin comes from."""
        return _package(self._scan()[name])

    def ask(self, name: str, question: Callable[[], bool]) -> bool:
        """The answer of a member to a question; a plugin that raises answers no, with a warning."""
        try:
            return question()
        except Exception as error:
            self.report_failure(name, error)
            return False

    def report_failure(self, name: str, error: BaseException) -> None:
        """Warn of a plugin that raised while it was used and is passed over; members of this
        package are not passed over: their errors are bugs."""
        if name not in self._scan() or self._is_own(name):
            raise error
        text = f"the {self.noun} {name} of {self.package_of(name)} raised {_describe(error)}"
        warnings.warn(f"{text}; it is passed over", SyncpointWarning, stacklevel=3)

    @contextmanager
    def contain_errors(self, name: str, kind: type[SyncpointError], task: str) -> Iterator[None]:
        """Turn what a plugin raises at its task into one of our errors, which are one line; what a
        member of this package raises is a bug and passes."""
        try:
            yield
        except SyncpointError:
            raise
        except Exception as error:
            if name not in self._scan() or self._is_own(name):
                raise
            package = self.package_of(name)
            expected = f"the {self.noun} {name} of {package} {task}"
            raise kind(expected, f"it raised {_describe(error)}") from error

    def forget_plugins(self) -> None:
        """Drop everything that is known of installed packages, so that they are scanned again."""
        self._entries = None
        self._members.clear()
        self._failed.clear()
        self._bad.clear()
        self._reported = 0

    def _is_own(self, name: str) -> bool:
        return _package(self._scan()[name]) == _OWN_PACKAGE

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
        """The entry point to use for a name. Of two packages that declare the same name neither is
        used: which one came first would depend on how they were installed."""
        own = [entry for entry in entries if _package(entry) == _OWN_PACKAGE]
        others = [entry for entry in entries if entry not in own]
        if name in self.built_in or own:
            if others:
                self._leave_out(name, others, "a built-in one has this name")
            return own[0] if own and name not in self.built_in else None
        if len({(_package(entry), entry.value) for entry in entries}) > 1:
            self._leave_out(name, entries, f"{len(entries)} entry points have this name")
            return None
        return entries[0]

    def _leave_out(self, name: str, entries: list[EntryPoint], reason: str) -> None:
        packages = " and ".join(sorted({_package(entry) for entry in entries}))
        self._bad.append(BadPlugin(self.noun, name, packages, reason))

    def _load_plugin(self, name: str) -> None:
        entry = self._scan().get(name)
        if entry is None or name in self._members or entry in self._failed:
            return
        try:
            self._members[name] = self._usable(entry)
        except (Exception, SystemExit) as error:
            self._failed.append(entry)
            is_ours = isinstance(error, _Unusable)
            reason = str(error) if is_ours else f"it cannot be loaded: {_describe(error)}"
            self._leave_out(name, [entry], reason)

    def _usable(self, entry: EntryPoint) -> Any:
        loaded = entry.load()
        declared = getattr(loaded, "API", None)
        if declared is None:
            raise _Unusable(f"it declares no API; this version takes API = {self._api}")
        if declared != self._api:
            raise _Unusable(f"it declares API = {declared!r}; this version takes {self._api}")
        member = _instance(loaded)
        missing = [name for name in _members_of(self._protocol) if not hasattr(member, name)]
        if missing:
            raise _Unusable(f"it lacks {', '.join(missing)}")
        for name in _methods_of(self._protocol):
            if not callable(getattr(member, name)):
                raise _Unusable(f"its {name} is not a method")
        if member.name != entry.name:
            raise _Unusable(f"its name is {member.name!r}, not that of its entry point")
        return member


class _Unusable(Exception):
    """A plugin that does not keep the protocol."""


def installed_entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group in all installed packages."""
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


def _attribute(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _instance(loaded: Any) -> Any:
    return loaded() if isinstance(loaded, type) else loaded


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _members_of(protocol: type) -> list[str]:
    names = (*get_annotations(protocol), *vars(protocol))
    return [name for name in names if not name.startswith("_")]


def _methods_of(protocol: type) -> list[str]:
    return [name for name in _members_of(protocol) if callable(vars(protocol).get(name))]


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())[:_MAX_REASON_LENGTH]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
