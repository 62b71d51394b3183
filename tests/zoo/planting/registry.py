"""The planters by name, each with the stage of the work at which it is asked."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

STAGES = ("net", "program", "onnx", "run", "inputs")
"""net: the model itself, before anything is made of it, on both sides; program: the exported
program of the target; onnx: its ONNX graph; run: what it left behind; inputs: what it is given."""
_PLANTERS = {}


@dataclass(frozen=True)
class Planter:
    """A function that hurts the work in one way."""

    name: str
    stage: str
    plant: object


def planter(stage):
    """Makes a function of `(work, **arguments)` a planter."""
    assert stage in STAGES

    def known(plant):
        assert plant.__name__ not in _PLANTERS, plant.__name__
        _PLANTERS[plant.__name__] = Planter(plant.__name__, stage, plant)
        return plant

    return known


@cache
def _loaded():
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "registry"):
            import_module(f"zoo.planting.{path.stem}")


def planters():
    """All there are."""
    _loaded()
    return dict(_PLANTERS)


def find_planter(name):
    """The planter of this name."""
    _loaded()
    return _PLANTERS[name]
