"""Where the tests find the project and their data."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
MODELS = TESTS / "models"
DATA = TESTS / "data"
ASCEND_DATA = DATA / "ascend"
"""Dumps of Ascend devices with the reports that their own tools wrote."""
OLDER_DATA = DATA / "older"
"""Runs and comparisons that were written before files had checksums."""
