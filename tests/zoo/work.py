"""A fault in the making: the net, the program that will be the target, and where it was hurt."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from zoo.entry import Entry
from zoo.nets import Net

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "int8": torch.float32}


class NoSite(Exception):
    """There is no place for this fault in the net that was drawn."""


@dataclass
class Work:
    """What a planter is given, and what it leaves behind."""

    entry: Entry
    rng: Random
    runtime: str
    dtype: str
    fusion: str
    net: Net
    """The reference and its inputs."""
    target_inputs: tuple = ()
    program: Any = None
    """The exported program of the target, in its element type."""
    proto: Any = None
    """The target's ONNX graph."""
    clean_proto: Any = None
    run: Any = None
    """What the target left behind, where it is handed over as a dump."""
    target: Any = None
    """What `compare` is given: a model, a file or a run."""
    options: dict = field(default_factory=dict)
    reference_options: dict = field(default_factory=dict)
    sites: set = field(default_factory=set)
    """Names, in the reference, of the ops and parameters that may be blamed."""
    said: str = ""
    """What was done, for people."""
    change: float | None = None
    """How much the fault changes, where the planter knows better than a look at the values."""

    def blame(self, *names):
        """These ops or parameters of the reference are the right answer."""
        self.sites.update(str(name) for name in names)


def pick(work, sites, why):
    """One of the sites, by the seed; where there is none, the net has no place for the fault."""
    sites = list(sites)
    if not sites:
        raise NoSite(why)
    return work.rng.choice(sites)
