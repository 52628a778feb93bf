"""A headless Chromium that tests talk to: the DevTools protocol over a pipe, without a library for it."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio",
    "--disable-default-apps", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
LIMIT_S = 60.0
ATTACK = "</script><img src=x onerror=hacked=1><b id=pwned>&amp;\"'`${hacked=1}//\u2028"
"""What somebody else's plan might call things."""


class Browser:
    """One browser with one page. State: the process, its pipe, and what the page has told since it was opened.

    complaints: errors and warnings of the console, and exceptions. requests: every address that was asked for.
    """

    def __init__(self, width: int = 1500, height: int = 1000) -> None:
        assert CHROMIUM is not None
        self.profile = tempfile.mkdtemp(prefix="autoshard-chromium-")
        self.complaints: list[str] = []
        self.requests: list[str] = []
        to_browser, self.writes = os.pipe()
        self.reads, from_browser = os.pipe()
        # the protocol is spoken on descriptors 3 and 4
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "-", str(to_browser), str(from_browser), CHROMIUM, *FLAGS,
             f"--window-size={width},{height}", f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.count, self.session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.writes)
        os.close(self.reads)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    # -- the protocol --------------------------------------------------------------------------------

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer; what the page tells meanwhile is kept."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writes, data) :]
        while True:
            answer = self._message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._told(answer)

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + LIMIT_S
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reads], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self.reads, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _told(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str([a.get("description") or a.get("value") for a in params["args"]]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    # -- the page ------------------------------------------------------------------------------------

    def open(self, page: Path) -> None:
        """Open a file, and wait until the page says that it is drawn."""
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait("document.documentElement?.dataset.ready !== undefined")

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript, promises awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        until = time.monotonic() + LIMIT_S
        while not self.ask(expression):
            if time.monotonic() > until:
                raise RuntimeError(f"never became true: {expression}; {self.complaints}")
            time.sleep(0.02)

    def press(self, key: str, text: str = "") -> None:
        """One key, as from a keyboard."""
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
        words: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        if len(key) == 1 or key == "Enter":
            words["text"] = text or ("\r" if key == "Enter" else key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **words)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def prefer(self, theme: str) -> None:
        """What the system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )  # fmt: skip

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
