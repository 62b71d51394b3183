"""Make the pictures of the documents: the real page on a real comparison, in Debian's Chromium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests")]
IMAGES = ROOT / "docs" / "images"
DESKTOP_VIEWPORT = {"width": 1440, "height": 900}
LAPTOP_VIEWPORT = {"width": 1280, "height": 800}


def main() -> None:
    """All of them."""
    from playwright.sync_api import sync_playwright

    from helpers import browser_server

    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        place = Path(folder)
        browser_server.make(place)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        guilty = browser_server.start("view", str(place / "guilty.cmp"))
        statistics = browser_server.start("view", str(place / "statistics.cmp"))
        with chdir(place):
            session = browser_server.start("session")
        try:
            for name, served, state, view, scheme in (
                ("findings", guilty, {}, DESKTOP_VIEWPORT, "light"),
                (
                    "guilty",
                    guilty,
                    {"row": "g", "sort": "operation", "grouped": 1},
                    DESKTOP_VIEWPORT,
                    "light",
                ),
                (
                    "dark",
                    guilty,
                    {"row": "g", "sort": "operation", "grouped": 1},
                    DESKTOP_VIEWPORT,
                    "dark",
                ),
                ("inherited", guilty, {"row": "i", "sort": "operation"}, LAPTOP_VIEWPORT, "light"),
                ("statistics", statistics, {"row": "d"}, LAPTOP_VIEWPORT, "light"),
                ("session", session, {}, DESKTOP_VIEWPORT, "light"),
            ):
                take(browser, name, served, state, view, scheme)
        finally:
            browser.close()
            for served in (guilty, statistics, session):
                browser_server.stop(served)


def take(
    browser: Any, name: str, served: Any, state: dict[str, Any], view: Any, scheme: str
) -> None:
    """One picture; a row is named by a key that leads to it."""
    page = browser.new_page(viewport=view, color_scheme=scheme, reduced_motion="reduce")
    address_state = {key: value for key, value in state.items() if key != "row"}
    page.goto(served.at(**address_state))
    page.wait_for_timeout(2500)
    for key in {"g": ["g"], "i": ["g", "ArrowDown"], "d": ["ArrowDown"]}.get(
        state.get("row", ""), []
    ):
        page.keyboard.press(key)
        page.wait_for_timeout(1200)
    page.wait_for_timeout(1500)
    page.screenshot(path=IMAGES / f"{name}.png")
    page.close()
    print(f"docs/images/{name}.png")


if __name__ == "__main__":
    main()
