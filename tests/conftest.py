"""What all tests share: how long the generators of hypothesis search.

`HYPOTHESIS_PROFILE=fuzz` searches twenty times as long, `thorough` three times; `SYNCPOINT_FUZZ=3`
triples any of them.
That this file is here also lets every test import the helpers beside it: `oracle`, `models`.
"""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("SYNCPOINT_FUZZ", "1"))

settings.register_profile("default", deadline=None, max_examples=100 * FACTOR)
settings.register_profile("thorough", deadline=None, max_examples=300 * FACTOR)
settings.register_profile("fuzz", deadline=None, max_examples=2000 * FACTOR)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items):
    """What drives a browser comes last: its driver leaves an event loop running in this thread, in
    which no test of ours could run one of its own."""
    items.sort(key=lambda item: "browser" in item.path.parts)
