"""Pages in headless Chromium, driven by Selenium. Screenshots go to ``build/screenshots``."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unskew.paper.demo import run_demo
from unskew.report import PAGES

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed: pip install selenium"
)
waiting = pytest.importorskip(
    "selenium.webdriver.support.wait", reason="selenium is not installed: pip install selenium"
)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no Chromium here: apt-get install chromium chromium-driver",
)
PICTURES = Path(__file__).parents[2] / "build" / "screenshots"
PHONE, DESKTOP = 390, 1280
SCRIPT = "<script>alert(1)</script>"
FLAGS = """
    --headless=new --no-sandbox --disable-gpu --hide-scrollbars --disable-dev-shm-usage
    --disable-background-networking
""".split()


class Browser:
    """A window that opens files."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))

    def open(
        self, path: Path, *, width: int = DESKTOP, theme: str = "light", media: str = "screen"
    ) -> None:
        """A file, as wide and as dark as that; what was logged before is forgotten."""
        size = {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 2 if width == PHONE else 1,
            "mobile": width == PHONE,
        }
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": features}
        )
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(path.as_uri())

    def ask(self, script: str) -> Any:
        """What a script returns."""
        return self.driver.execute_script(f"return {script}")

    def find(self, selector: str) -> list[Any]:
        """Elements that are shown."""
        return [
            each
            for each in self.driver.find_elements("css selector", selector)
            if each.is_displayed()
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            each["params"]["request"]["url"]
            for each in messages
            if each["method"] == "Network.requestWillBeSent"
        ]

    def picture(self, name: str) -> Path:
        """The whole page, to look at."""
        width, height = self.ask("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    window = Browser()
    yield window
    window.driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the demo."""
    return run_demo().to_html(tmp_path_factory.mktemp("demo") / "report.html")


BOXES = """[...document.querySelectorAll('.drawing')].filter(d => d.checkVisibility()).map(each => {
    const own = each.getBoundingClientRect();
    const marks = [...each.querySelectorAll('.mark')].map(mark => mark.getBoundingClientRect());
    const texts = [...each.querySelectorAll('text')].map(text => text.getBoundingClientRect());
    const heights = texts.map(box => box.height);
    return {
        width: own.width, height: own.height, marks: marks.length,
        empty: marks.filter(box => box.width < 1 || box.height < 1).length,
        outside: texts.filter(box => box.left < own.left - 3 || box.right > own.right + 12).length,
        small: heights.filter(height => height < 11).length,
    }})"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_demo_is_drawn_at_every_width_and_photographed(
    browser: Browser, report: Path, width: int, theme: str
) -> None:
    browser.open(report, width=width, theme=theme)
    boxes = browser.ask(BOXES)

    assert len(boxes) == 9
    for box in boxes:
        assert min(box["width"], box["height"]) > 100
        assert box["marks"] > 0
        assert (box["empty"], box["outside"], box["small"]) == (0, 0, 0)
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    assert browser.picture(f"demo-{width}-{theme}").stat().st_size > 50_000


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("kind", list(PAGES))
def test_every_kind_is_drawn_without_a_complaint_or_a_request(
    browser: Browser, pages: dict[str, Path], kind: str, width: int
) -> None:
    browser.open(pages[kind], width=width)

    assert all(
        box["width"] > 100 and box["height"] > 60 and box["empty"] == 0
        for box in browser.ask(BOXES)
    )
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    assert browser.driver.get_log("browser") == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [
        pages[kind].as_uri()
    ]
    browser.picture(f"{kind}-{width}")


PAINTED = """
    new PerformanceObserver(seen => arguments[0](seen.getEntries().at(-1).startTime))
        .observe({type: 'paint', buffered: true})
"""


def test_the_demo_is_small_and_drawn_in_two_seconds(browser: Browser, report: Path) -> None:
    browser.open(report)
    drawn = browser.ask("performance.getEntriesByType('navigation')[0].loadEventEnd")
    painted = browser.driver.execute_async_script(PAINTED)

    assert report.stat().st_size < 1_500_000
    assert 0 < max(drawn, painted) < 2000


def column(browser: Browser, place: int) -> list[str]:
    cells: list[str] = browser.ask(
        "document.querySelector('table')"
        f".querySelectorAll('tbody tr td:nth-child({place + 1})')"
        ".values().map(cell => cell.textContent).toArray()"
    )
    return cells


def test_a_click_on_a_head_sorts_the_table_and_another_turns_it_round(
    browser: Browser, report: Path
) -> None:
    browser.open(report)
    heads = browser.find("table th")
    before = column(browser, 3)

    heads[3].find_element("css selector", "button").click()
    assert column(browser, 3) == sorted(before, key=float) != before
    assert heads[3].get_attribute("aria-sort") == "ascending"
    heads[3].find_element("css selector", "button").click()
    assert column(browser, 3) == sorted(before, key=float, reverse=True)
    heads[0].find_element("css selector", "button").click()
    assert column(browser, 0) == sorted(column(browser, 0))
    assert heads[3].get_attribute("aria-sort") is None


def brightness(browser: Browser) -> float:
    """Of the page's ground, 0 to 255."""
    color: str = browser.ask("getComputedStyle(document.body).backgroundColor")
    return sum(map(float, color.removeprefix("rgb(").removesuffix(")").split(","))) / 3


def test_the_page_is_dark_where_the_reader_is_and_the_button_turns_that_round(
    browser: Browser, report: Path
) -> None:
    browser.open(report, theme="dark")
    (button,) = browser.find("#theme")
    assert brightness(browser) < 40
    assert button.get_attribute("aria-pressed") == "true"

    button.click()
    assert brightness(browser) > 240
    assert button.get_attribute("aria-pressed") == "false"
    browser.ask("localStorage.clear()")
    browser.open(report, theme="light")
    assert brightness(browser) > 240
    browser.find("#theme")[0].click()
    assert brightness(browser) < 40
    browser.driver.refresh()
    assert brightness(browser) < 40
    browser.ask("localStorage.clear()")


CONTRAST = """(() => {
    const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => [r, g, b].map(c => linear(c / 255))
        .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
    const parse = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const ground = light(parse(getComputedStyle(document.body).backgroundColor));
    return ['h1', 'h1 em', '.lead', '.text', 'td', 'th button', '.facts dt'].map(name => {
        const own = light(parse(getComputedStyle(document.querySelector(name)).color));
        return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
    });
})()"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_letters_stand_out_from_the_ground(browser: Browser, report: Path, theme: str) -> None:
    browser.open(report, theme=theme)

    assert min(browser.ask(CONTRAST)) >= 4.5


def test_values_are_told_to_the_mouse_and_to_the_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    drawing = browser.find(".drawing")[0]
    browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", drawing)
    webdriver.ActionChains(browser.driver).move_to_element(
        browser.find(".drawing .point")[2]
    ).perform()
    (tip,) = browser.find("#tip")
    assert tip.text == "realist minus optimist, SNIPS: −0.90 [−0.92, −0.88]"

    browser.driver.execute_script("arguments[0].focus({preventScroll: true})", drawing)
    webdriver.ActionChains(browser.driver).send_keys("\ue014").perform()
    assert browser.find("#tip")[0].text == "realist minus optimist, Naive: +0.13 [+0.12, +0.14]"
    webdriver.ActionChains(browser.driver).send_keys("\ue014").perform()
    assert "IPS" in browser.find("#tip")[0].text
    webdriver.ActionChains(browser.driver).send_keys("\ue00c").perform()
    assert browser.find("#tip") == []


def test_a_screen_reader_is_told_what_a_drawing_shows(browser: Browser, report: Path) -> None:
    browser.open(report)

    def told_now(driver: Any) -> dict[str, str] | None:
        """All drawings, once they are there: the tree grows for a while after the page has come."""
        nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        told = {
            node["name"]["value"]: node["description"]["value"]
            for node in nodes
            if node["role"]["value"] == "image"
        }
        return told if len(told) == 9 else None

    told = waiting.WebDriverWait(browser.driver, 20).until(told_now)

    assert told["MAE: realist minus optimist"].startswith(
        "realist minus optimist, Naive: +0.13 [+0.12, +0.14]; "
    )


@pytest.mark.parametrize(
    "kind",
    ["evaluation", "grouped_evaluation", "comparison", "sensitivity", "robustness", "diagnosis"],
)
def test_a_name_that_is_a_script_stays_text(
    browser: Browser, pages: dict[str, Path], kind: str
) -> None:
    browser.open(pages[kind])

    assert SCRIPT in browser.ask("document.querySelector('main').textContent")
    assert browser.ask("document.scripts.length") == 1
    assert browser.driver.get_log("browser") == []


def test_a_long_table_is_closed_until_it_is_wanted_or_printed(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["sensitivity"])
    assert browser.find("details table") == []

    browser.find("summary")[-1].click()
    assert len(browser.find("details table")) == 1
    browser.driver.refresh()
    browser.ask("dispatchEvent(new Event('beforeprint'))")
    assert len(browser.find("details table")) == 1


def test_a_phones_page_prints_as_the_wide_one_and_light(browser: Browser, report: Path) -> None:
    browser.open(report, width=PHONE, theme="dark", media="print")

    assert brightness(browser) == 255
    assert browser.find("#theme") == []
    assert browser.ask(
        "[...document.querySelectorAll('.wide')].every(each => each.checkVisibility())"
    )
    pdf = base64.b64decode(
        browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    )
    assert pdf.startswith(b"%PDF")
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / "demo.pdf").write_bytes(pdf)
