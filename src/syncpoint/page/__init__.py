"""A comparison as the page shows it, for the server and for HTML reports; and the built page."""

from __future__ import annotations

from pathlib import Path

BUILT_PAGE = Path(__file__).parent / "static"
"""Script and style sheet, built by `make web`; part of every wheel."""
