"""A real Chromium that opens a file: what a reader of a page sees and does."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def open_chromium() -> Iterator[Any]:
    """The browser that is installed, driven by playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def open_file(browser: Any, path: Path, width: int = 1400, **settings: Any) -> Iterator[Any]:
    """The page of a file, in a window of that width; what its script throws is an error here."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
    page = context.new_page()
    thrown = []
    page.on("pageerror", lambda error: thrown.append(error))  # noqa: PLW0108 (a builtin has no attributes)
    page.goto(path.resolve().as_uri())
    yield page
    context.close()
    assert not thrown, thrown
