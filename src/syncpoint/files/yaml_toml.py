"""Read YAML and TOML files that people write, with limits on size, depth and self-reference, and
clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError, describe_error

_CURE = "correct the file"
MAX_BYTES = 4 << 20
_MAX_NODES = 1_000_000
"""Values in a file with its aliases expanded; a few lines of aliases can expand to billions."""
_MAX_DEPTH = 50
_MAX_BITS = 64
"""Bits of an integer; Python refuses to print much longer ones."""


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file; an empty file gives None."""
    import yaml

    data = _read(path, what)
    try:
        value = yaml.load(data, _loader())  # a SafeLoader
        _check_size(value, path)
        return value
    except RecursionError as error:
        raise FormatError(f"{path} is not valid YAML: nested too deep", cure=_CURE) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Numbers of too many digits and impossible dates raise other errors than YAMLError.
        raise FormatError(
            f"{path} is not valid YAML: {describe_error(error)}", cure=_CURE
        ) from error


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file."""
    import tomllib

    try:
        value = tomllib.loads(_read(path, what).decode("utf-8-sig"))
        _check_size(value, path)
        return value
    except RecursionError as error:
        raise FormatError(f"{path} is not valid TOML: nested too deep", cure=_CURE) from error
    except ValueError as error:
        raise FormatError(
            f"{path} is not valid TOML: {describe_error(error)}", cure=_CURE
        ) from error


def _read(path: Path, what: str) -> bytes:
    try:
        # Reading a pipe would block.
        if path.exists() and not path.is_file():
            raise InputError(
                f"{what} must be a file, but {path} is not", cure="give the path of a file"
            )
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {what} at {path}: {describe_error(error)}",
            cure="check that it exists and that you may read it",
        ) from error
    if len(data) > MAX_BYTES:
        raise FormatError(
            f"{path} has more than {MAX_BYTES:,} bytes, the limit for such a file",
            cure="make it smaller",
        )
    return data


def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, but a repeated key or nesting that is too deep is an error."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise yaml.composer.ComposerError(None, None, "it is nested too deep")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: set[str] = set()
            for key, _ in node.value if node.id == "mapping" else ():
                if key.id == "scalar" and key.value in keys:
                    problem = f"the key {key.value!r} is repeated"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                keys.add(key.value if key.id == "scalar" else "")
            return super().construct_mapping(node, deep=deep)

    return Loader


def _check_size(value: Any, path: Path) -> None:
    """Raise FormatError for a value that contains itself or is far larger than its file."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Any) -> int:
        if isinstance(node, int) and node.bit_length() > _MAX_BITS:
            raise FormatError(f"{path} has an integer of more than {_MAX_BITS} bits", cure=_CURE)
        if not isinstance(node, dict | list | tuple | set):
            return 1
        key = id(node)
        if key in open_nodes:
            raise FormatError(f"{path} has an alias that refers to its own parent", cure=_CURE)
        if key not in sizes:
            open_nodes.add(key)
            inner = (*node, *node.values()) if isinstance(node, dict) else node
            sizes[key] = 1 + sum(map(size, inner))
            open_nodes.discard(key)
        return sizes[key]

    if size(value) > _MAX_NODES:
        raise FormatError(
            f"{path} has more than {_MAX_NODES:,} values when its aliases are expanded",
            cure=_CURE,
        )
