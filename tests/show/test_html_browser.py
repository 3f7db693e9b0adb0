"""The HTML page in a browser: sort, filter, reports, narrow screens, print; nothing runs that is not the page's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fadiag.show.audit import Audit
from pytest_fadiag.show.html import html

COLUMNS = Audit(()).columns

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")

Audits = dict[str, Callable[[], Audit]]
Opened = Callable[[Audit], Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless browser for all tests."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Opens the page of an audit; at the end of each test the console must be empty."""
    sized(browser, 1200)

    def page(audit: Audit) -> Any:
        file = tmp_path / "audit.html"
        file.write_text(html(audit, "1.0"), "utf-8")
        browser.get(file.as_uri())
        return browser

    yield page
    media(browser)
    assert browser.get_log("browser") == []


def sized(browser: Any, width: int) -> None:
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def media(browser: Any, kind: str = "", scheme: str = "light") -> None:
    wanted = {"media": kind, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)


def keys(browser: Any, column: int) -> list[str | None]:
    """The sort keys of one column, from top to bottom."""
    script = "return [...document.querySelectorAll('#audit tbody tr')].map(r => r.cells[arguments[0]].dataset.sort ?? null)"
    found: list[str | None] = browser.execute_script(script, column)
    return found


def shown(browser: Any) -> list[str]:
    """The ids of the reports whose rows are visible, and that these are the reports which are."""
    visible = "[...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility())"
    script = f"return {visible}.map(e => e.dataset.report || e.id)"
    rows: list[str] = browser.execute_script(script, "#audit tbody tr")
    assert browser.execute_script(script, "#reports > details") == rows
    return rows


def header(browser: Any, column: int) -> Any:
    return browser.find_elements(By.CSS_SELECTOR, "#audit thead th")[column]


def test_every_column_sorts_both_ways_with_what_is_missing_last(opened: Opened, audits: Audits) -> None:
    browser = opened(Audit([*audits["usual"]().rows, *audits["odd"]().rows]))
    original = shown(browser)
    columns = len(browser.find_elements(By.CSS_SELECTOR, "#audit thead th"))
    assert columns == len(COLUMNS) + 4
    for column in range(columns):
        numeric = "number" in header(browser, column).get_attribute("class")
        for direction in ("ascending", "descending"):
            header(browser, column).find_element(By.TAG_NAME, "button").click()
            assert header(browser, column).get_attribute("aria-sort") == direction
            found = keys(browser, column)
            known = [key for key in found if key is not None]
            assert found == known + [None] * (len(found) - len(known))
            if numeric:
                values = [float(key) for key in known]
                assert values == sorted(values, reverse=direction == "descending")
            elif all(key.isascii() for key in known):
                folded = [key.lower() for key in known]
                assert folded == sorted(folded, reverse=direction == "descending")
        others = browser.find_elements(By.CSS_SELECTOR, "#audit th[aria-sort]:not([aria-sort=none])")
        assert len(others) == 1
        header(browser, column).find_element(By.TAG_NAME, "button").click()
        assert header(browser, column).get_attribute("aria-sort") == "none" and shown(browser) == original


def test_sorting_by_keyboard_takes_the_reports_along(opened: Opened, audits: Audits) -> None:
    browser = opened(audits["usual"]())
    button = header(browser, 3).find_element(By.TAG_NAME, "button")
    button.send_keys(Keys.ENTER)
    assert header(browser, 3).get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.SPACE)
    assert header(browser, 3).get_attribute("aria-sort") == "descending"
    values = [float(key) for key in keys(browser, 3) if key is not None]
    assert values == sorted(values, reverse=True) and shown(browser) != [f"report-{n}" for n in range(len(values))]
    assert browser.switch_to.active_element == button
    outline = browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", button)
    assert outline == "solid"


def test_filters_by_words_status_and_diagnostic_combine(opened: Opened, audits: Audits) -> None:
    audit = audits["usual"]()
    browser = opened(audit)

    def wanted(test: Callable[[Any], bool]) -> list[str]:
        return [f"report-{number}" for number, row in enumerate(audit.rows) if test(row)]

    find = browser.find_element(By.ID, "find")
    find.send_keys("DFA 42")
    assert shown(browser) == wanted(lambda row: "dfa" in row.method and row.seed == 42)
    assert browser.find_element(By.ID, "shown").text == f"{len(shown(browser))} of {len(audit.rows)} shown"
    find.clear()
    find.send_keys("x" + Keys.BACKSPACE)
    fired, status = Select(browser.find_element(By.ID, "fired")), Select(browser.find_element(By.ID, "status"))
    fired.select_by_value("b")
    assert shown(browser) == wanted(lambda row: "b" in row.fired) != wanted(lambda row: bool(row.fired))
    fired.select_by_value("none")
    assert shown(browser) == wanted(lambda row: not row.fired)
    status.select_by_value("walk-back")
    assert shown(browser) == []
    browser.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert shown(browser) == wanted(lambda row: True)


def test_a_method_leads_to_its_report(opened: Opened, audits: Audits) -> None:
    audit = audits["usual"]()
    browser = opened(audit)
    text = browser.find_element(By.CSS_SELECTOR, "#report-3 pre")
    assert not text.is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#audit a[href='#report-3']").click()
    browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert text.is_displayed() and text.text == str(audit.rows[3].report)
    assert browser.switch_to.active_element.tag_name == "summary"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert not text.is_displayed()
    browser.find_element(By.ID, "open").click()
    assert all(pre.is_displayed() for pre in browser.find_elements(By.CSS_SELECTOR, "details pre"))
    browser.find_element(By.ID, "close").click()
    assert not text.is_displayed()


def test_a_method_named_script_stays_text(opened: Opened, audits: Audits) -> None:
    name = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>\"'</script>"
    rows = [replace(row, method=name, checkpoint=name) for row in audits["usual"]().rows[:2]]
    browser = opened(Audit(rows))
    assert browser.find_element(By.CSS_SELECTOR, "#audit a").text == name
    assert browser.execute_script("return [document.scripts.length, document.images.length, window.ran ?? null]") == [
        1,
        0,
        None,
    ]


@pytest.mark.parametrize("name", ["usual", "odd", "one", "probed", "empty"])
def test_nothing_scrolls_sideways_on_a_phone(opened: Opened, audits: Audits, name: str, browser: Any) -> None:
    sized(browser, 400)
    opened(audits[name]())
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    wide = """return [document.documentElement, ...document.querySelectorAll('.scroll')]
        .filter(e => e.scrollWidth > e.clientWidth).map(e => e.outerHTML.slice(0, 80))"""
    assert browser.execute_script(wide) == []
    outside = """return [...document.body.querySelectorAll('*')].filter(e => e.checkVisibility()
        && e.getBoundingClientRect().right > 400.5).map(e => e.outerHTML.slice(0, 80))"""
    assert browser.execute_script(outside) == []


@pytest.mark.parametrize("width", [400, 800, 1000, 1200])
def test_what_fired_is_in_sight_at_every_width_and_is_printed(opened: Opened, audits: Audits, browser: Any, width: int) -> None:
    audit = audits["probed"]()
    sized(browser, width)
    opened(audit)
    ends = "return [...document.querySelectorAll('#audit td.fired')].map(c => c.getBoundingClientRect().right)"
    found = browser.execute_script(ends)
    assert len(found) == sum(len(row.fired) for row in audit.rows) > 0 and max(found) <= width
    media(browser, "print")
    assert browser.execute_script("return getComputedStyle(document.querySelector('#audit tr')).display") == "table-row"


def test_on_a_phone_what_fired_stands_first_in_its_card_with_its_title(opened: Opened, audits: Audits, browser: Any) -> None:
    audit = audits["usual"]()
    sized(browser, 400)
    opened(audit)
    first = """return [...document.querySelectorAll('#audit tbody tr')].map(row => [...row.cells]
        .filter(c => c.dataset.title && !c.classList.contains('seed') && c.checkVisibility())
        .map(c => ({box: c.getBoundingClientRect(), fired: c.classList.contains('fired'), title: c.dataset.title,
                    said: getComputedStyle(c, '::before').content}))
        .sort((a, b) => a.box.top - b.box.top || a.box.left - b.box.left))"""
    for row, cells in zip(audit.rows, browser.execute_script(first), strict=True):
        fired = [cell["fired"] for cell in cells]
        assert fired == sorted(fired, reverse=True) and sum(fired) == len(row.fired)
        assert all(cell["box"]["left"] >= 0 and cell["box"]["right"] <= 400 for cell in cells)
        assert all(cell["title"] in cell["said"] for cell in cells)


def test_print_shows_every_report_and_no_controls(opened: Opened, audits: Audits) -> None:
    browser = opened(audits["usual"]())
    visible = "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).length"
    assert browser.execute_script(visible, "details pre, details svg") == 0
    media(browser, "print")
    printed = len(browser.find_elements(By.CSS_SELECTOR, "details pre, details svg"))
    assert browser.execute_script(visible, "details pre, details svg") == printed > 0
    assert browser.execute_script(visible, "form, input, select, .controls") == 0
    media(browser)
    browser.execute_script("window.seen = []; addEventListener('beforeprint', () => { "
                           "window.seen = [...document.querySelectorAll('details')].map(d => d.open) })")  # fmt: skip
    browser.execute_cdp_cmd("Page.printToPDF", {})
    assert set(browser.execute_script("return window.seen")) == {True}
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0


def test_the_page_follows_the_scheme_of_the_system(opened: Opened, audits: Audits) -> None:
    browser = opened(audits["usual"]())
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(ground)
    media(browser, scheme="dark")
    assert browser.execute_script(ground) != light


def test_without_scripts_the_page_reads_as_well(opened: Opened, audits: Audits, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(audits["usual"]())
        assert not browser.find_element(By.CSS_SELECTOR, "form").is_displayed()
        browser.find_element(By.CSS_SELECTOR, "#report-0 summary").click()
        assert browser.find_element(By.CSS_SELECTOR, "#report-0 pre").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
