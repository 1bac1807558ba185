"""Test the wheel as a new user gets it: in an empty folder, with an empty home and without the repository.

    python scripts/release/smoke.py dist/odar-*.whl      # or: make smoke

Installs it into a new environment, asks a question, serves one to the OpenAI SDK, calibrates, evaluates, and
uninstalls. Each step is timed; the first failure ends the run. The local weights (98 MB) are downloaded as for a user,
with pip from its configured index. Pass --keep to keep the folders.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEPT = re.compile(r"PIP_|SSL_|LANG$|LC_|.*_PROXY$|.*_proxy$")
"""Variables of ours that a stranger would have too: how to reach a package index."""
QUESTION = "Is Paris the capital of France?"
CLIENT = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
with client:
    reply = client.chat.completions.create(model="odar", messages=[{"role": "user", "content": sys.argv[2]}])
print(reply.choices[0].message.content)
"""
BRIEF = ("--set", "routing.samples=2", "--set", "fast.max_tokens=32", "--set", "slow.max_tokens=32")
"""Enough to see that it runs; nothing to judge the answers by."""
LEFT = (".cache/odar", ".cache/pip", ".config/odar", ".local/share/odar")
"""What docs/guides/upgrade.md says may be left in a home after `pip uninstall`."""


class Stranger:
    """A new user with an empty home, an empty folder and the wheel."""

    def __init__(self, root: Path, wheel: Path) -> None:
        self.wheel = wheel
        self.folder, self.home, self.environment = root / "folder", root / "home", root / "env"
        for place in (self.folder, self.home):
            place.mkdir()
        self.bin = self.environment / "bin"
        self.variables = {name: value for name, value in os.environ.items() if KEPT.match(name)}
        self.variables |= {
            "ODAR_PROFILE": "tiny",
            "HOME": str(self.home),
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
        }

    def run(self, *command: str | Path, timeout: float = 900) -> str:
        """Run a command in the empty folder; what it printed."""
        done = subprocess.run(
            list(map(str, command)), cwd=self.folder, env=self.variables, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(
                f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def odar(self, *arguments: str) -> str:
        """Run the installed command."""
        return self.run(self.bin / "odar", *arguments)

    def pip(self, *arguments: str) -> str:
        """Run the new environment's pip."""
        return self.run(self.bin / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def install(who: Stranger) -> str:
    """A new environment with the wheel and what it needs, nothing more."""
    who.run(sys.executable, "-m", "venv", who.environment)
    who.pip("install", str(who.wheel))
    place = Path(who.run(who.bin / "python", "-c", "import odar; print(odar.__file__)").strip())
    expect(place.is_relative_to(who.environment), f"odar was imported from {place}")
    return who.odar("--version").strip()


def ask(who: Stranger) -> str:
    """The first question; fetches the weights."""
    answer = json.loads(who.odar("ask", "--json", QUESTION))
    expect(bool(answer["text"]), f"no answer: {answer}")
    return repr(answer["text"])


def ask_again(who: Stranger) -> str:
    """A question with everything in place, and its trace."""
    answer = who.odar("ask", "--seed", "1", QUESTION).strip()
    expect(len(who.odar("traces", "--json").splitlines()) >= 1, "no trace was kept")
    return repr(answer)


def serve(who: Stranger) -> str:
    """Start the gateway, make one call with the OpenAI SDK, and stop it."""
    who.pip("install", "openai")
    errors = who.folder / "serve.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [who.bin / "odar", "serve", "--port", "0"], cwd=who.folder, env=who.variables, stderr=log
        )
    try:
        url = _wait(lambda: re.search(r"http://127\.0\.0\.1:\d+", errors.read_text()), process)
        said = who.run(who.bin / "python", "-c", CLIENT, url.group(), QUESTION).strip()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(40)
    expect(bool(said), "the SDK got an empty answer")
    expect(code == 128 + signal.SIGTERM, f"odar serve ended with {code}:\n{errors.read_text()}")
    return repr(said[:40])


def calibrate(who: Stranger) -> str:
    """Calibrate on as few starter questions as possible; the result must load again."""
    who.odar("calibrate", "--limit", "30", "--force", "--out", "calibration.json", *BRIEF)
    sources = len(json.loads((who.folder / "calibration.json").read_text())["sources"])
    who.odar("ask", "--set", "calibration=calibration.json", QUESTION)
    return f"{sources} sources measured"


def evaluate(who: Stranger) -> str:
    """Collect, replay and report, with the extra that they need."""
    who.pip("install", f"{who.wheel}[evals]")
    who.odar("eval", "collect", "starter", "--limit", "8", "--samples", "2", "--out", "panel", "--quiet", *BRIEF)
    rows: list[Any] = json.loads(who.odar("eval", "replay", "panel", "--json"))
    who.odar("eval", "report", "panel", "--out", "report.html")
    size = (who.folder / "report.html").stat().st_size
    expect(len(rows) > 5 and size > 50_000, f"{len(rows)} policies, a report of {size} bytes")
    return f"{len(rows)} policies replayed, report of {size / 1e3:.0f} kB"


def uninstall(who: Stranger) -> str:
    """Uninstall; only the files that the documentation names may be left in the home."""
    who.pip("uninstall", "--yes", "odar")
    installed = [
        place for place in who.environment.rglob("*odar*") if "odar" in place.name.split("-")[0].split(".")[0]
    ]
    expect(not installed, f"left in the environment: {installed}")
    files = [str(file.relative_to(who.home)) for file in who.home.rglob("*") if not file.is_dir()]
    strange = [file for file in files if not file.startswith(LEFT) and not file.startswith(_OTHERS)]
    expect(not strange, f"left in the home, and not documented: {strange}")
    return f"left in the home: {', '.join(sorted({'/'.join(file.split('/')[:2]) for file in files}))}"


_OTHERS = (".config/matplotlib", ".cache/matplotlib", ".cache/fontconfig")
"""What our dependencies leave there."""
STEPS: tuple[Callable[[Stranger], str], ...] = (install, ask, ask_again, serve, calibrate, evaluate, uninstall)


def expect(good: bool, why: str) -> None:
    """Exit with a message unless the condition holds."""
    if not good:
        raise SystemExit(why)


def _wait(look: Callable[[], Any], process: subprocess.Popen[bytes], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if found := look():
            return found
        time.sleep(0.1)
    raise SystemExit("odar serve did not start to listen")


def main() -> None:
    """Every step, timed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="odar-smoke-"))
    started = time.monotonic()
    try:
        who = Stranger(root, options.wheel.resolve(strict=True))
        for step in STEPS:
            begun = time.monotonic()
            said = step(who)
            print(f"ok {time.monotonic() - begun:6.1f} s  {step.__name__}: {said}", flush=True)
        print(f"all in {time.monotonic() - started:.0f} s")
    finally:
        if options.keep:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
