"""A headless Chromium that opens pages, and says what they logged and what they requested.

It is driven by the DevTools protocol over a pair of pipes, so that nothing listens on a port.
"""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
)

_KEY_NUMBERS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}

# Sums of these are the modifiers of keys and clicks.
ALT, CONTROL, META, SHIFT = 1, 2, 4, 8

# Where to click an element, once the scripts of its page have run and nothing covers it.
_PLACE_OF = """(() => {
    const found = document.querySelector(%s);
    if (!found || document.readyState !== "complete") return null;
    found.scrollIntoView({ block: "nearest" });
    const box = found.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const top = document.elementFromPoint(x, y);
    return box.width && box.height && top && (found.contains(top) || top.contains(found)) ? [x, y] : null;
})()"""


class Page:
    """One page of a browser. `logged` has messages to its console, `requested` the addresses that it asked for."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.logged: list[str] = []
        self.requested: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Load a file and wait until it is drawn."""
        self.open_url(path.as_uri())

    def open_url(self, url: str) -> None:
        """Load a page and wait until it is drawn."""
        with contextlib.suppress(AssertionError):  # a page that is being left answers nothing
            self.evaluate("window.isLeft = true")
        answer = self._call("Page.navigate", url=url)
        if answer.get("errorText") == "net::ERR_NETWORK_CHANGED":
            # A test that runs beside this one has added or removed a network interface.
            answer = self._call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        if "loaderId" in answer:
            # Not only another part of the same document. That one may still answer, and is complete.
            self.wait_until("window.isLeft === undefined")
        self.wait_until_loaded()
        self.wait_until_drawn()

    def close(self) -> None:
        self._call("Page.close")

    def run_in_new_documents(self, script: str) -> None:
        """Run a script in every document that is loaded from now on, before its own scripts."""
        self._call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def forget_cache(self) -> None:
        """Load everything anew from the next page on."""
        self._call("Network.clearBrowserCache")

    def wait_until_drawn(self) -> None:
        """Wait for two frames. A page behind another one gets none, so it comes to the front."""
        self._call("Page.bringToFront")
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def show_as(self, *, width: int, height: int = 900, scheme: str = "light", media: str = "") -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, expression: str, *, timeout_s: float = 60) -> Any:
        """Wait until an expression has a true value, and return it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):  # a page that is being left answers nothing
                if found := self.evaluate(expression):
                    return found
            time.sleep(0.05)
        text = self.evaluate("document.body.innerText")
        raise AssertionError(f"{expression} stayed false. The page logged {self.logged} and shows:\n{text}")

    def wait_until_loaded(self) -> None:
        """Wait until the scripts of the page have run. Modules run late, and what is done before is lost."""
        self.wait_until("document.readyState === 'complete'")

    def click(self, selector: str) -> None:
        """Click the middle of the first element that a selector finds, once it is in view and stays in its place."""
        place = _PLACE_OF % json.dumps(selector)
        x, y = self.wait_until(place)
        self.wait_until_drawn()
        while (now := self.wait_until(place)) != [x, y]:
            # What has just been drawn above it has moved it.
            x, y = now
            self.wait_until_drawn()
        self.move_pointer(x, y)
        self.move_pointer(x, y, kind="mousePressed")
        self.move_pointer(x, y, kind="mouseReleased")

    def type(self, text: str) -> None:
        """Type text where the focus is."""
        self._call("Input.insertText", text=text)

    def move_pointer(self, x: float, y: float, *, kind: str = "mouseMoved") -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def click_at(self, x: float, y: float, *, count: int = 1, modifiers: int = 0) -> None:
        """Click with the left button, `count` times in a row."""
        common = {"x": x, "y": y, "button": "left", "modifiers": modifiers}
        for number in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self._call("Input.dispatchMouseEvent", type=kind, clickCount=number, **common)
        self.wait_until_drawn()

    def drag(self, start: tuple[float, float], end: tuple[float, float], *, modifiers: int = 0) -> None:
        """Press the left button at one place, move in steps to another, and release it there."""
        common = {"button": "left", "buttons": 1, "clickCount": 1, "modifiers": modifiers}
        self._call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **common)
        for share in (0.25, 0.5, 0.75, 1.0):
            x, y = (start[axis] + share * (end[axis] - start[axis]) for axis in (0, 1))
            self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, **common)
        self._call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **common)
        self.wait_until_drawn()

    def turn_wheel(self, x: float, y: float, by: float, *, modifiers: int = 0) -> None:
        common = {"x": x, "y": y, "deltaX": 0, "deltaY": by, "modifiers": modifiers}
        self._call("Input.dispatchMouseEvent", type="mouseWheel", **common)
        self.wait_until_drawn()

    def press(self, key: str, *, modifiers: int = 0) -> None:
        """Press a key once the page answers. The modifiers are a sum of ALT, CONTROL, META and SHIFT."""
        self.wait_until_loaded()
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not modifiers & 7 else "")
        code = f"Key{key.upper()}" if len(key) == 1 and key.isalpha() else key
        number = _KEY_NUMBERS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        for kind in ("keyDown", "keyUp"):
            pressed = {"text": text} if kind == "keyDown" and text else {}
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                modifiers=modifiers,
                windowsVirtualKeyCode=number,
                **pressed,
            )

    def save_picture(self, path: Path, *, is_whole: bool = False) -> None:
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        answer = self._browser.call(method, self._session, **parameters)
        for event in self._browser.take_events():
            self._note(event["method"], event["params"])
        return answer

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(event["request"]["url"])
        elif method == "Log.entryAdded":
            self.logged.append(event["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.logged.append(" ".join(str(each.get("value", each)) for each in event["args"]))
        elif method == "Runtime.exceptionThrown":
            self.logged.append(str(event["exceptionDetails"]))


class Browser:
    """A running Chromium; `start_browser` makes one."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events = os.fdopen(commands, "wb", buffering=0), os.fdopen(events, "rb", buffering=0)
        self._numbers = itertools.count(1)
        self._rest, self._seen = b"", list[dict[str, Any]]()

    def open_page(self) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        self._commands.write(json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._seen.append(answer)
        raise AssertionError("Chromium ended.")

    def take_events(self) -> list[dict[str, Any]]:
        taken, self._seen = self._seen, []
        return taken

    def close(self) -> None:
        self._commands.close()
        self._events.close()

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            message, end, rest = self._rest.partition(b"\0")
            if end:
                self._rest = rest
                yield json.loads(message)
            elif data := self._events.read(65536):
                self._rest += data
            else:
                return


@contextlib.contextmanager
def start_browser(folder: Path) -> Iterator[Browser]:
    """Run a Chromium with its files in this folder."""
    assert CHROMIUM is not None, "without it these tests are skipped"
    commands_out, commands_in = os.pipe()
    events_out, events_in = os.pipe()
    # It reads commands from descriptor 3 and writes events to 4.
    script = f'exec "$@" 3<&{commands_out} 4>&{events_in}'
    arguments = [CHROMIUM, *_OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={folder / 'chromium'}"]
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *arguments],
        pass_fds=(commands_out, events_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_out)
    os.close(events_in)
    browser = Browser(commands_in, events_out)
    try:
        yield browser
        browser.call("Browser.close")
    finally:
        browser.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
