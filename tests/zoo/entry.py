"""The kinds of fault, one file each: data alone."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ENTRIES = Path(__file__).parent / "entries"
CLASSES = (
    *("overflow", "implementation", "fusion", "accumulation", "precision", "weights"),
    *("processing", "environment", "nondeterminism", "memory", "capture"),
)
RUNTIMES = ("torch", "inductor", "onnxruntime", "coreai", "dump")
DTYPES = ("f32", "f16", "bf16", "int8")


@dataclass(frozen=True)
class Entry:
    """One kind of fault."""

    name: str
    title: str
    classes: tuple[str, ...]
    """Right answers; several only where `why_several` says what makes them equally right."""
    planter: str
    arguments: dict = field(default_factory=dict)
    """A list of two floats is a range, any other list a choice."""
    runtimes: tuple[str, ...] = ("torch",)
    models: tuple[str, ...] = ("cnn", "transformer")
    dtypes: tuple[str, ...] = ("f32",)
    net: dict = field(default_factory=dict)
    """What the net must have, by family."""
    op: str = "site"
    """`site`: the op named must be the planted one, or a group that holds it; `any`: the fault is
    everywhere and no op is wrong to name."""
    realistic: str = ""
    why_several: str = ""


def read_entry(path):
    """One file; whatever is not known in it is a mistake."""
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    classes = said.pop("class")
    classes = (classes,) if isinstance(classes, str) else tuple(classes)
    for name in ("runtimes", "models", "dtypes"):
        if name in said:
            said[name] = tuple(said[name])
    entry = Entry(name=path.stem, classes=classes, **said)
    assert set(entry.classes) <= set(CLASSES), (path.name, classes)
    assert set(entry.runtimes) <= set(RUNTIMES), (path.name, entry.runtimes)
    assert set(entry.dtypes) <= set(DTYPES), (path.name, entry.dtypes)
    assert entry.op in ("site", "any"), (path.name, entry.op)
    assert entry.realistic and (len(classes) == 1 or entry.why_several), path.name
    return entry


@cache
def entries():
    """All kinds by name."""
    return {path.stem: read_entry(path) for path in sorted(ENTRIES.glob("*.toml"))}
