"""Headless Chromium, alone: it may fetch nothing but the file it is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_MS = 180_000  # ends what would never end; a busy machine starts a browser in its own time
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


AXE = """axe.run(document, {preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa',
  'best-practice']}).then(found => found.violations.flatMap(rule => rule.nodes.map(
    node => rule.id + ': ' + node.html.slice(0, 90))))"""
BARE_TABLES = """[...document.querySelectorAll('th:not([scope]), table:not(:has(caption))')].map(
  one => one.outerHTML.slice(0, 90))"""


def not_accessible(page: Any) -> list[str]:
    """What axe-core finds: contrast of AA, names, heads of tables, order, use by the keyboard."""
    import axe_playwright_python

    library = Path(axe_playwright_python.__file__).with_name("axe.min.js")
    page.evaluate(f"{library.read_text('utf-8')}\n;0")
    return [*page.evaluate(AXE), *page.evaluate(BARE_TABLES)]


@dataclass
class Opened:
    """A page, and what it said and asked for while it was read."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path="/usr/bin/chromium", args=ARGS, timeout=LIMIT_MS
        )
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Any, file: Path, *, width: int = 1280, scheme: str = "light"
) -> Iterator[Opened]:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(LIMIT_MS)
    found = Opened(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("request", lambda request: found.asked.append(request.url))
    page.on("dialog", lambda dialog: (found.said.append(dialog.message), dialog.dismiss()))
    page.goto(file.as_uri())
    # no `wait_for_function`: it evaluates text in the page, which the page's policy forbids
    while page.evaluate("document.documentElement.dataset.drawn === undefined"):
        page.wait_for_timeout(50)
    yield found
    page.close()
