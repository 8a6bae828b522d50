"""Headless Chromium without a network, driven over a pipe by its DevTools protocol; the standard library is enough."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    # Whatever asks for the network all the same finds none, but for a server of the tests.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--proxy-server=127.0.0.1:9",
    "--remote-debugging-pipe",
)
# The protocol is spoken on descriptors 3 (commands) and 4 (answers).
_LAUNCHER = """
import os, sys
commands, answers = (os.dup(int(number)) for number in sys.argv[1:3])
commands, answers = os.dup2(commands, 50), os.dup2(answers, 51)
os.dup2(commands, 3), os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_WAIT = 20.0


class Browser:
    """One Chromium with a profile of its own; `with Browser() as browser: browser.open(path)`."""

    def __init__(self) -> None:
        assert CHROMIUM, "no chromium is installed"
        self._profile = tempfile.mkdtemp(prefix="seq2seq-attn-chromium-")
        commands_out, commands_in = os.pipe()
        answers_out, answers_in = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _LAUNCHER, str(commands_out), str(answers_in)),
                *(CHROMIUM, *_OPTIONS, f"--user-data-dir={self._profile}"),
            ],
            pass_fds=(commands_out, answers_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands_out)
        os.close(answers_in)
        self._write, self._read = commands_in, answers_out
        self._buffer = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.ask("Browser.close")
            self._process.wait(5)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path: Path | str, width: int = 1200, height: int = 900, *, dark: bool = False) -> "Page":
        """Open a file, or `http://127.0.0.1:...` of a server of the tests, in a page of its own."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session, path, (width, height), dark)

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its answer; events that come meanwhile are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _WAIT
        while True:
            answer = self._receive(deadline, method)
            if answer.get("id") != self._count:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"chromium did not answer {method}")
            part = os.read(self._read, 2**20)
            if not part:
                raise RuntimeError(f"chromium went away at {method}")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


class Page:
    """An open page: what it did, and what a user can do with it."""

    def __init__(
        self, browser: Browser, target: str, session: str, path: Path | str, size: tuple[int, int], dark: bool
    ) -> None:
        self._browser, self._target, self._session = browser, target, session
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        if isinstance(path, Path):
            speed = dict(latency=0, downloadThroughput=0, uploadThroughput=0)
            self.ask("Network.emulateNetworkConditions", offline=True, **speed)
        self.url = path.resolve().as_uri() if isinstance(path, Path) else path
        self.ask("Page.navigate", url=self.url)
        self.wait_for(f"location.href.startsWith({self.url!r}) && document.readyState === 'complete'")

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Return once a JavaScript expression is true."""
        deadline = time.monotonic() + _WAIT
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}; errors: {self.errors}")
            time.sleep(0.02)

    def press(self, key: str, text: str | None = None) -> None:
        """Press and release a key, by its name in `KeyboardEvent.key`."""
        text = key if text is None and len(key) == 1 else text
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, selector: str, text: str) -> None:
        """Put a text into a field, in the place of what is there, as typing or pasting does."""
        field = f"document.querySelector({selector!r})"
        self.evaluate(f"({field}.focus(), {field}.select())")
        self.ask("Input.insertText", text=text)

    def choose_file(self, selector: str, path: Path) -> None:
        """Give a file to a file field."""
        node = self.ask("Runtime.evaluate", expression=f"document.querySelector({selector!r})")["result"]["objectId"]
        self.ask("DOM.setFileInputFiles", files=[str(path)], objectId=node)

    def point(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what the window shows, or the whole page, as PNG."""
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    @property
    def errors(self) -> list[str]:
        """What the page said of errors and warnings, threw, blocked, or asked in a dialog."""
        found = []
        for event in self._events():
            details, method = event["params"], event["method"]
            if method == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(str(details["args"]))
            elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(str(details["entry"]))
            elif method == "Page.javascriptDialogOpening":
                found.append(f"dialog: {details['message']}")
        return found

    @property
    def requests(self) -> list[str]:
        """Every address that the page asked for, its own file apart."""
        asked = [e["params"]["request"]["url"] for e in self._events() if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if url != self.url and not url.startswith(("data:", "blob:", "about:"))]

    def _events(self) -> list[dict[str, Any]]:
        self.ask("Runtime.evaluate", expression="0")
        return [event for event in self._browser.events if event.get("sessionId") == self._session]
