"""A real Chromium without a window, spoken to over its own pipe: the DevTools protocol, messages ended by a zero byte.

One process, as many tabs as tests want; each test gets a fresh one with its own size, colours and record of what went
over the network and what went wrong. Chromium reads commands from file descriptor 3 and answers on 4
(--remote-debugging-pipe). Where there is none the tests are skipped, or fail when DRAFTMILL_REQUIRE_BROWSER=1.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_S = 60.0


def find_browser() -> str:
    """The program, or a skip by name; a failure where one is required."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    said = "no chromium here: .ci/browser installs it"
    if os.environ.get("DRAFTMILL_REQUIRE_BROWSER") == "1":
        pytest.fail(said)
    pytest.skip(said)


class Browser:
    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self.process, self._write, self._read = process, write, read
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """The result; what else arrives meanwhile is kept in `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def wait(self, method: str, session: str) -> dict[str, Any]:
        """The event of this name, which is taken out of `events`."""
        deadline = time.monotonic() + WAIT_S
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    self.events.remove(event)
                    return event
            self.events.append(self._next(deadline))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            assert piece, "the browser ended, or does not answer"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


class Tab:
    """A page that is open. `requests`: addresses that were asked for. `problems`: errors of scripts and of the console,
    and what the page's policy turned away."""

    def __init__(self, browser: Browser, width: int = 1280, height: int = 800, *, dark: bool = False) -> None:
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.darken(dark)

    def call(self, method: str, **parameters: Any) -> Any:
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def darken(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)

    def open(self, address: str) -> "Tab":
        self.call("Page.navigate", url=address)
        self.browser.wait("Page.loadEventFired", self.session)
        return self

    def run(self, script: str) -> Any:
        """The value of an expression in the page, as JSON."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "")

    def click(self, selector: str) -> None:
        """In the middle of the first element that fits, as a mouse does."""
        box = self.run(
            f"(() => {{const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def screenshot(self, *, whole: bool = False) -> bytes:
        """PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    @property
    def requests(self) -> list[str]:
        return [each["params"]["request"]["url"] for each in self._events("Network.requestWillBeSent")]

    @property
    def problems(self) -> list[str]:
        thrown = [json.dumps(each["params"]) for each in self._events("Runtime.exceptionThrown")]
        logged = [each["params"]["entry"]["text"] for each in self._events("Log.entryAdded")]
        written = [json.dumps(each["params"]["args"]) for each in self._events("Runtime.consoleAPICalled")]
        return thrown + logged + written

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.run("0")  # what happened before this has arrived then
        return [
            each
            for each in self.browser.events
            if each.get("method") == method and each.get("sessionId") == self.session
        ]


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """profile: a new folder for all that it writes."""
    program = find_browser()
    commands_read, commands_write = os.pipe()
    answers_read, answers_write = os.pipe()
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
        "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    # Through bash, which can give the pipes the numbers that Chromium wants, whatever theirs are.
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{commands_read} 4>&{answers_write}', "bash", program, *options],
        pass_fds=(commands_read, answers_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_read)
    os.close(answers_write)
    try:
        browser = Browser(process, commands_write, answers_read)
        yield browser
        browser.call("Browser.close")
    finally:
        os.close(commands_write)
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers_read)
