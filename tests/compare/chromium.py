# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium over the DevTools protocol, with nothing but Python's standard library."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time

DESKTOP = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}


class Failed(Exception):
    """A check that does not hold."""


def expect(condition, message):
    if not condition:
        raise Failed(message)


def find_chromium():
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"]
    return next((path for path in (shutil.which(name) for name in names if name) if path), None)


class Browser:
    """Messages are JSON with a zero byte behind each; the browser reads them on descriptor 3 and writes on 4."""

    def __init__(self, program, folder):
        child_in, self.out = os.pipe()
        self.into, child_out = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (child_in, self.out, self.into, child_out)]
        for fd in (child_in, self.out, self.into, child_out):
            os.close(fd)
        child_in, self.out, self.into, child_out = high
        # Python can pass a descriptor on only under its own number, so 3 and 4 of this process are taken for it.
        os.dup2(child_in, 3)
        os.dup2(child_out, 4)
        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "--no-first-run",
                   "--disable-gpu", "--disable-frame-rate-limit", "--disable-dev-shm-usage",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
                   "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-US"]
        if os.geteuid() == 0:  # the sandbox refuses to run as root, which is what containers of CI are
            options.append("--no-sandbox")
        self.log = open(f"{folder}/browser.log", "wb")  # noqa: SIM115  # closed with the browser
        self.process = subprocess.Popen([program, *options, "about:blank"], pass_fds=(3, 4), stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        for fd in (3, 4, child_in, child_out):
            os.close(fd)
        self.buffer, self.last_id, self.events = b"", 0, []

    def close(self):
        try:
            self.call("Browser.close", wait=False)
            self.process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()

    def read(self, seconds):
        """The next message, or None when there is none in that time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.into, 1 << 20)
            if not data:
                raise RuntimeError("Chromium ended; see what `chromium --headless=new about:blank` says here")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, wait=True, **params):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        while wait:
            answer = self.read(60)
            if answer is None:
                raise RuntimeError(f"Chromium did not answer {method} within 60 s")
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def wait_for(self, matches, seconds, what):
        """Takes the first event, past or to come, that `matches`."""
        end = time.monotonic() + seconds
        while True:
            for i, event in enumerate(self.events):
                if matches(event):
                    return self.events.pop(i)
            message = self.read(max(0, end - time.monotonic()))
            if message is None:
                raise Failed(f"{what} did not happen within {seconds} s")
            self.events.append(message)


class Page:
    def __init__(self, browser, file):
        self.browser, self.file = browser, file
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.viewport(DESKTOP)
        self.media(scheme="light")
        self.call("Page.navigate", url=file.as_uri())
        browser.wait_for(lambda event: event["method"] == "Page.loadEventFired" and event.get("sessionId") == self.session, 60,
                         "loading the page")
        self.settle()

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        self.browser.events.clear()

    def run(self, code):
        """The value of an expression; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(f"{code[:80]}: {result['exceptionDetails']['exception'].get('description', '')}")
        return result["result"].get("value")

    def settle(self):
        """Two frames: what an input has set going is drawn, and observers of sizes have run."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def viewport(self, size):
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def media(self, scheme=None, kind=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def set(self, selector, value):
        key = "checked" if isinstance(value, bool) else "value"
        self.run(f"""(() => {{ const input = document.querySelector({json.dumps(selector)}); input.{key} = {json.dumps(value)};
                 for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, {{bubbles: true}})); }})()""")
        self.settle()

    def box(self, selector):
        """Where an element is in the viewport, after it has been scrolled to the middle."""
        box = self.run(f"""(() => {{ const element = document.querySelector({json.dumps(selector)}); if (!element) return null;
                       element.scrollIntoView({{block: 'center', behavior: 'instant'}}); const box = element.getBoundingClientRect();
                       return [box.left, box.top, box.width, box.height]; }})()""")
        expect(box, f"there is no {selector}")
        self.settle()
        return box

    def mouse(self, x, y, kind="mouseMoved", **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector):
        left, top, width, height = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(left + width / 2, top + height / 2, kind, button="left", clickCount=1)
        self.settle()

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)
        self.settle()

    def tooltip(self):
        return self.run("""(() => { const box = document.getElementById('tooltip'); return box.hidden ? null : {x: box.dataset.x,
            title: box.querySelector('.title').textContent, rows: [...box.querySelectorAll('.row')].map(
            (row) => [row.querySelector('.name').textContent, row.querySelector('.value').textContent])}; })()""")

    def paths(self, chart, kind=".mean"):
        return self.run(f"[...document.querySelectorAll('#{chart} path{kind}')].map((path) => path.getAttribute('d'))")

    def picture(self, height=None):
        clip = {}
        if height:
            width = self.run("document.documentElement.clientWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}, "captureBeyondViewport": True}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"])
