"""The built site: every internal link leads somewhere, and pages fit into desktop and phone.

``make docs`` runs these tests after the build; elsewhere they skip. Screenshots go to
``build/screenshots``.
"""

from __future__ import annotations

import base64
import re
import shutil
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest

SITE = Path(__file__).parents[1] / "build" / "site" / "html"
pytestmark = pytest.mark.skipif(not (SITE / "index.html").exists(), reason="run `make docs` first")
PICTURES = SITE.parents[1] / "screenshots"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
SHOWN = [
    "index.html",
    "guides/real-log.html",
    "equations.html",
    "api/index.html",
    "api/unskew.evaluate.html",
    "gallery/index.html",
    "gallery/01_movie_lovers.html",
]
WIDE_CODE = """
return [...document.querySelectorAll("article pre")]
    .filter(block => block.scrollWidth > block.clientWidth + 1)
    .map(block => block.textContent.slice(0, 80));
"""
PAGE_WIDTH = "return document.documentElement.scrollWidth;"


class Links(HTMLParser):
    """The ids of a page, what it refers to, and what it loads from elsewhere."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {str(values[name]) for name in ("id", "name") if values.get(name)}
        target = values.get("href" if tag in ("a", "link") else "src")
        if target and not re.match(r"\w+:|//", target):
            self.targets.add(target)
        elif target and tag != "a" and not target.startswith("data:"):
            self.loaded.add(target)


def find_pages() -> dict[Path, Links]:
    return {path: Links(path) for path in SITE.rglob("*.html") if "_static" not in path.parts}


def test_internal_links_lead_somewhere() -> None:
    pages = find_pages()
    wrong = []
    for path, links in pages.items():
        for target in links.targets:
            address, anchor = urldefrag(unquote(target))
            file = (path.parent / address.split("?")[0]).resolve() if address else path
            is_known = not anchor or file not in pages or "_modules" in path.parts
            if not file.exists() or not (is_known or anchor in pages[file].ids):
                wrong.append(f"{path.relative_to(SITE)}: {target}")

    assert len(pages) > 200
    assert wrong == []


def test_pages_load_nothing_from_elsewhere() -> None:
    loaded = {path.name: links.loaded for path, links in find_pages().items() if links.loaded}

    assert loaded == {}


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="the dev extra has selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    options.add_argument("--disable-dev-shm-usage")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


def show(driver: Any, page: Path, width: int, theme: str = "light") -> None:
    """Open a page in a window of this width."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    driver.get(page.as_uri())


def test_pages_fit_into_desktop_and_phone(driver: Any) -> None:
    """No code is cut at 1280 pixels, and no page scrolls sideways at 400."""
    pages = [path for path in SITE.rglob("*.html") if not {"_modules", "_static"} & {*path.parts}]
    wrong = []
    for page in sorted(pages):
        show(driver, page, 1280)
        wrong += [f"{page.name}: {text}" for text in driver.execute_script(WIDE_CODE)]
        show(driver, page, 400)
        if (width := driver.execute_script(PAGE_WIDTH)) > 400:
            wrong.append(f"{page.name} is {width} pixels wide")

    assert wrong == []


def test_formulas_are_drawn(driver: Any) -> None:
    show(driver, SITE / "equations.html", 1280)
    n_formulas = driver.execute_script('return document.querySelectorAll(".math").length')
    count = 'return document.querySelectorAll(".math mjx-container").length'
    deadline = time.monotonic() + 60
    while driver.execute_script(count) < n_formulas and time.monotonic() < deadline:
        time.sleep(0.1)

    assert n_formulas > 5
    assert driver.execute_script(count) == n_formulas


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("page", SHOWN)
def test_screenshots_are_taken(driver: Any, page: str, width: int, theme: str) -> None:
    show(driver, SITE / page, width, theme)
    options = {"captureBeyondViewport": False}
    shot = base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"])
    PICTURES.mkdir(exist_ok=True, parents=True)
    name = page.removesuffix(".html").replace("/", "-")
    (PICTURES / f"site-{name}-{width}-{theme}.png").write_bytes(shot)

    assert len(shot) > 10_000
