"""What the page is told of a comparison, by a server or inside a report; and the built page."""

from __future__ import annotations

from pathlib import Path

BUILT = Path(__file__).parent / "static"
"""Script and style sheet, made by `make web`; part of every wheel."""
