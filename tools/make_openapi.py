"""Write the description of the server's API, from which the page's types are made."""

from __future__ import annotations

import json
from pathlib import Path

from syncpoint.server.app import create_app
from syncpoint.server.comparison_library import Library

PLACE = Path(__file__).parent.parent / "web" / "openapi.json"


def described() -> str:
    """The description as it must lie in web/."""
    app = create_app(Library())
    return json.dumps(app.openapi(), indent=1) + "\n"


if __name__ == "__main__":
    PLACE.write_text(described())
    print(f"wrote {PLACE}")
