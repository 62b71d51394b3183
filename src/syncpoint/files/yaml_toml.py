"""YAML and TOML that people write: small, not nested too deep, and one line where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncpoint.errors import FormatError, InputError

MAX_BYTES = 4 << 20
_MAX_NODES = 1_000_000
"""Values in a file once its aliases are written out; a few lines can stand for billions."""
_MAX_DEPTH = 50
_MAX_BITS = 64
"""Of a whole number; Python cannot even write down those that are much longer."""


def read_yaml(path: Path, what: str) -> Any:
    """The content of a YAML file; None of an empty one."""
    import yaml

    data = _read(path, what)
    try:
        value = yaml.load(data, _loader())  # a SafeLoader
        _check_size(value, path)
        return value
    except RecursionError as error:
        raise FormatError(f"YAML in {path}", "it is nested too deep") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Numbers of too many digits and dates that are none are no YAMLErrors.
        raise FormatError(f"YAML in {path}", _one_line(error)) from error


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file."""
    import tomllib

    try:
        value = tomllib.loads(_read(path, what).decode("utf-8-sig"))
        _check_size(value, path)
        return value
    except RecursionError as error:
        raise FormatError(f"TOML in {path}", "it is nested too deep") from error
    except ValueError as error:
        raise FormatError(f"TOML in {path}", _one_line(error)) from error


def _read(path: Path, what: str) -> bytes:
    try:
        # Reading a pipe would block.
        if path.exists() and not path.is_file():
            raise InputError(f"{what} at {path}", "no file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{what} at {path}", _one_line(error)) from error
    if len(data) > MAX_BYTES:
        raise FormatError(f"at most {MAX_BYTES} bytes in {path}", "more")
    return data


def _one_line(error: Exception) -> str:
    from syncpoint.errors import describe_error

    return describe_error(error)


def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """As the safe loader, but a key that is repeated is an error and not the last one, and
        so is what is nested too deep."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise yaml.composer.ComposerError(None, None, "it is nested too deep")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            known: set[str] = set()
            for key, _ in node.value if node.id == "mapping" else ():
                if key.id == "scalar" and key.value in known:
                    what = f"the key {key.value!r} twice"
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
                known.add(key.value if key.id == "scalar" else "")
            return super().construct_mapping(node, deep=deep)

    return Loader


def _check_size(value: Any, path: Path) -> None:
    """Refuse a value that holds itself, or that is far larger than its file."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Any) -> int:
        if isinstance(node, int) and node.bit_length() > _MAX_BITS:
            raise FormatError(f"numbers of at most {_MAX_BITS} bits in {path}", "a longer one")
        if not isinstance(node, dict | list | tuple | set):
            return 1
        key = id(node)
        if key in open_nodes:
            raise FormatError(f"YAML without circles in {path}", "an alias to what it stands in")
        if key not in sizes:
            open_nodes.add(key)
            inner = (*node, *node.values()) if isinstance(node, dict) else node
            sizes[key] = 1 + sum(map(size, inner))
            open_nodes.discard(key)
        return sizes[key]

    if size(value) > _MAX_NODES:
        raise FormatError(f"at most {_MAX_NODES:,} values in {path}", "more, by its aliases")
