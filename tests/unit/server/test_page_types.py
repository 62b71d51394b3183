"""The page's types are made from the server that it speaks to: `make types` after a change."""

import json
import sys

from helpers.paths import ROOT


def test_the_description_that_the_types_are_made_from_is_that_of_the_server():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from make_openapi import PLACE, described
    finally:
        sys.path.remove(str(ROOT / "tools"))
    assert json.loads(PLACE.read_text()) == json.loads(described())


def test_every_message_has_its_type():
    known = json.loads((ROOT / "web" / "openapi.json").read_text())["components"]["schemas"]
    types = (ROOT / "web" / "src" / "api" / "schema.ts").read_text()
    for name, message in known.items():
        start = types.index(f"        {name}: {{")
        body = types[start : types.index("\n        };", start)]
        for field in message.get("properties", {}):
            assert f" {field}" in body, (name, field)
