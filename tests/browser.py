"""A real browser for tests of pages: Chromium without a window, asked through the pipe of its DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

LIMIT = 120.0  # seconds until an answer must be there, on a machine that is busy
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def why_no_browser() -> str:
    """Why there is none, or nothing."""
    return "" if any(map(shutil.which, NAMES)) else f"none of {', '.join(NAMES)} is installed"


class Browser:
    """A page in a browser with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        # The browser reads 3 and writes 4, so neither may be one of these.
        given = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (read, write)]
        program = next(path for name in NAMES if (path := shutil.which(name)))
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{given[0]} 4>&{given[1]}', "browser", program, "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=given, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for descriptor in (read, write, *given):
            os.close(descriptor)
        self._number, self._unread, self._session = 0, b"", ""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Asks for something, and returns the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        text = json.dumps({**message, "sessionId": self._session} if self._session else message)
        os.write(self._to, text.encode() + b"\0")
        return self._until(lambda answer: answer.get("id") == self._number).get("result", {})

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Gives the page a size, a phone's below 500 pixels, and colors."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, address: str) -> None:
        """Opens an address from nothing, so that another fragment of the same page is loaded, too."""
        for page in ("about:blank", address):
            self.call("Page.navigate", url=page)
            self._until(lambda answer: answer.get("method") == "Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Presses a key of the keyboard."""
        number = {"Enter": 13, "Tab": 9, " ": 32}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=number,
                      **{"text": text} if text and kind == "keyDown" else {})

    def picture(self, path: Path) -> None:
        """Writes what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def _until(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT
        while True:
            while b"\0" not in self._unread:
                ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
                assert ready, "the browser does not answer"
                piece = os.read(self._from, 1 << 16)
                assert piece, f"the browser has ended with exit status {self._process.poll()}"
                self._unread += piece
            line, _, self._unread = self._unread.partition(b"\0")
            answer = json.loads(line)
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"]["exception"]["description"])
            if wanted(answer):
                assert "error" not in answer, answer
                return dict(answer)


def texts(browser: Browser, selector: str) -> list[str]:
    """The texts of all elements that match."""
    return list(browser.value(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.textContent)"))


def choose(browser: Browser, control: str, value: object) -> None:
    """Gives a control a value, as its reader does."""
    what = "checked" if isinstance(value, bool) else "value"
    browser.value(f"(one => {{ one.{what} = {json.dumps(value)}; one.dispatchEvent(new Event('input')); }})"
                  f"(document.getElementById('{control}'))")
