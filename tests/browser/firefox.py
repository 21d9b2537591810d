"""A headless Firefox, driven by its own protocol (Marionette): no driver has to be installed."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_NAMES = ("firefox-esr", "firefox")
_SECONDS = 60
_PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.newtab.preload": False,  # only the pages of a test are loaded, by one process
    "browser.newtabpage.enabled": False,
    "browser.startup.homepage": "about:blank",
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.ipc.processCount": 1,
    "dom.ipc.processPrelaunch.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.proxy.http": "127.0.0.1",  # nobody listens there: nothing is fetched, whatever the page says
    "network.proxy.http_port": 9,
    "network.proxy.share_proxy_settings": True,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.proxy.type": 1,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


def find_firefox() -> str | None:
    """The path of a Firefox, if one is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Firefox:
    """One browser with one window.

    Args:
        path: Of the program.
    """

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="ruler-firefox-", ignore_cleanup_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        preferences = {**_PREFERENCES, "marionette.port": port}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
        Path(self._profile.name, "user.js").write_text("\n".join(lines), encoding="utf-8")
        self._process = subprocess.Popen(
            [path, "--headless", "--marionette", "--no-remote", "--profile", self._profile.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._last = 0
        try:
            self._socket = self._connect(port)
            self._receive()  # its greeting
            self.send("WebDriver:NewSession", {})
        except Exception:
            self._stop()
            raise

    def _connect(self, port: int) -> socket.socket:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.1)

    def _receive(self) -> Any:
        head = b""
        while not head.endswith(b":"):
            head += self._socket.recv(1)
        body, size = b"", int(head[:-1])
        while len(body) < size:
            body += self._socket.recv(size - len(body))
        return json.loads(body)

    def send(self, command: str, parameters: dict[str, Any]) -> Any:
        """Have one command carried out and give its answer."""
        self._last += 1
        text = json.dumps([0, self._last, command, parameters]).encode()
        self._socket.sendall(f"{len(text)}:".encode() + text)
        _, _, error, result = self._receive()
        if error:
            raise RuntimeError(f"{command}: {error['error']}: {error['message']}")
        return result.get("value", result) if isinstance(result, dict) else result

    def open(self, page: Path, *, width: int = 1280, height: int = 900) -> None:
        """Load a file in a window whose page is this wide."""
        self.send("WebDriver:SetWindowRect", {"width": width, "height": height})
        frame = width - int(self.run("return innerWidth"))
        self.send("WebDriver:SetWindowRect", {"width": width + frame, "height": height})
        self.send("WebDriver:Navigate", {"url": page.absolute().as_uri()})

    def run(self, script: str, *arguments: Any, is_async: bool = False) -> Any:
        """Run JavaScript in the page, outside its content policy; async scripts call their last argument when done."""
        command = "WebDriver:ExecuteAsyncScript" if is_async else "WebDriver:ExecuteScript"
        return self.send(command, {"script": script, "args": list(arguments)})

    def take_picture(self, path: Path, *, is_full: bool = False) -> None:
        """Write what the window shows, or the whole page, as PNG."""
        path.write_bytes(base64.b64decode(self.send("WebDriver:TakeScreenshot", {"full": is_full})))

    def print_page(self, path: Path) -> None:
        """Write the page as PDF, on A4."""
        page = {"width": 21.0, "height": 29.7}
        path.write_bytes(base64.b64decode(self.send("WebDriver:Print", {"page": page, "background": True})))

    def close(self) -> None:
        """End the browser."""
        try:
            self.send("Marionette:Quit", {"flags": ["eForceQuit"]})
            self._socket.close()
        finally:
            self._stop()

    def _stop(self) -> None:
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()
