"""The list of matchers holds each under its own name."""

from __future__ import annotations

from importlib import import_module

from syncpoint.matching.matcher_chain import chain
from syncpoint.matching.matchers.map_file import MapFile
from syncpoint.matching.registry import MATCHERS


def test_every_built_in_matcher_has_the_name_it_is_listed_under():
    for name, place in MATCHERS.built_in.items():
        module, _, attribute = place.partition(":")
        assert getattr(import_module(module), attribute).name == name


def test_the_chain_has_the_built_in_matchers_in_their_order():
    names = [matcher.name for matcher in chain(MapFile())]
    assert names[: len(MATCHERS.built_in)] == list(MATCHERS.built_in)
