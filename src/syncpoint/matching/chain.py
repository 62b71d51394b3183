"""The chain of matchers: strongest evidence first, each given what the others left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from syncpoint.errors import InputError
from syncpoint.matching.boundary import BoundaryMatcher
from syncpoint.matching.compiled import CompiledMatcher
from syncpoint.matching.folds import FoldMatcher
from syncpoint.matching.map_file import MapFile, MapMatcher
from syncpoint.matching.names import NameMatcher
from syncpoint.matching.protocol import API, Matcher, Matching, Side
from syncpoint.matching.provenance import ProvenanceMatcher
from syncpoint.matching.structure import StructureMatcher
from syncpoint.matching.values import ValueMatcher
from syncpoint.run.model import TensorKey
from syncpoint.run.reader import Run


def chain(map_file: MapFile | None = None) -> list[Matcher]:
    """The matchers in order; those of other packages come last."""
    matchers: list[Matcher] = [MapMatcher(map_file)] if map_file else []
    matchers += [BoundaryMatcher(), CompiledMatcher(), ProvenanceMatcher(), NameMatcher()]
    matchers += [StructureMatcher(), ValueMatcher(), FoldMatcher()]
    for entry in entry_points(group="syncpoint.matchers"):
        matcher = entry.load()
        if getattr(matcher, "API", None) != API:
            raise InputError(
                f"API = {API} in the matcher {entry.name}",
                repr(getattr(matcher, "API", None)),
                f"upgrade or remove the package {entry.dist.name if entry.dist else entry.value}",
            )
        matchers.append(matcher())
    return matchers


def match(
    target: Run,
    reference: Run,
    matchers: Sequence[Matcher],
    confirm: Callable[[TensorKey, TensorKey], bool | None] | None = None,
) -> Matching:
    """Pair the tensors of two runs; `confirm` is asked about pairs by values alone."""
    matching = Matching(Side.of(target), Side.of(reference), confirm=confirm)
    for matcher in matchers:
        for pair in matcher.match(matching):
            matching.add(pair)
    return matching
