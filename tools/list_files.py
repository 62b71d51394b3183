"""Writes docs/design/FILES.md, the tree of the package with one line on each file.

The line is the first sentence of the file's docstring. With `--check`, fails if the document is not
up to date, and changes nothing.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "syncpoint"
DOCUMENT = ROOT / "docs" / "design" / "FILES.md"
_GENERATED = "_pb2.py"
_HEADER = """\
# Files

Where to look for what: the files of the package, each with the first line of its docstring. `make
files` writes this page, and `make lint` fails if it is not up to date. What a room is for and what
it may import is in [ARCHITECTURE.md](ARCHITECTURE.md).
"""


def summarize_file(path: Path) -> str:
    """The first paragraph of a file's docstring in one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def list_files() -> str:
    """The text of the document."""
    lines = [_HEADER]
    folders = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    for folder in folders:
        files = [path for path in sorted(folder.glob("*.py")) if not path.name.endswith(_GENERATED)]
        listed = [path for path in files if path.name != "__init__.py"]
        if not listed:
            continue
        lines.append(f"## {folder.relative_to(PACKAGE.parent)}\n")
        init = folder / "__init__.py"
        summary = summarize_file(init) if init in files else ""
        if summary:
            lines.append(f"{summary}\n")
        lines += [f"- `{path.name}`: {summarize_file(path)}" for path in listed]
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write or check the document; return the exit code."""
    text = list_files()
    if "--check" not in arguments:
        DOCUMENT.write_text(text, encoding="utf-8")
        return 0
    if DOCUMENT.is_file() and DOCUMENT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{DOCUMENT.relative_to(ROOT)} is not up to date; run `make files`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
