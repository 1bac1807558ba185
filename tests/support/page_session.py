"""Run a page of the documentation: all its blocks, in order, in one folder.

Files (`title="…"`), commands and Python are run. Addresses of other machines are replaced by local ones: model
servers to a stub, the gateway's usual port to a free one.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docsite.markdown import ROOT, Block, Page

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY")
STUBBED = ("openai", "anthropic", "deepseek", "together", "openrouter", "ollama", "llamacpp", "vllm")
WITH_KEYS = "<!-- run: with keys -->"
TRACE = "3f2a"
"""What pages call a trace of the reader's; here, the newest one."""
SPOKEN = re.compile(r"^\$ (.*(?:\\\n.*)*)$", re.MULTILINE)
COMMAND_LIMIT_S = 300
PATIENCE = {"ODAR_FAST_TIMEOUT_S": "120", "ODAR_SLOW_TIMEOUT_S": "240", "ODAR_LIMITS_DEADLINE_S": "280",
            "ODAR_LOCAL_THREADS": "1"}  # fmt: skip
"""On a busy machine the local model takes longer than a reader would wait for it, and longer still on two threads."""


class PageSession:
    """One page: its folder, its environment, its processes."""

    def __init__(self, page: Page, folder: Path, commands: Path, upstream: str) -> None:
        self.page, self.folder, self.upstream = page, folder, upstream
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._background: list[subprocess.Popen[str]] = []
        self._blocks: list[str] = []
        self.environment = {
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "ODAR_CACHE_DIR": os.environ.get("ODAR_CACHE_DIR", str(Path("~/.cache/odar").expanduser())),
            "ODAR_OFFLINE": "1",
            "ODAR_GATEWAY_PORT": str(self.port),
            **PATIENCE,
        }
        self._in_home(folder / ".config" / "odar" / "odar.toml")

    def _in_home(self, settings: Path) -> None:
        """Where a page has no odar.toml of its own, hosted models are the stub's as well."""
        settings.parent.mkdir(parents=True)
        settings.write_text(self._profile("") + "".join(self._provider(name) for name in STUBBED))

    def _profile(self, text: str) -> str:
        """The small model in place of the default pair, whose weights no test downloads."""
        chosen = WITH_KEYS in self.page.text or re.search(r"^(profile|model) =|providers.vllm-", text, re.MULTILINE)
        return "" if chosen else 'profile = "tiny"\n'

    def _provider(self, name: str) -> str:
        return f'[providers.{name}]\nbase_url = "{self._address(name)}"\n'

    def _address(self, provider: str) -> str:
        return self.upstream if provider == "anthropic" else self.upstream + "/v1"

    def with_local_addresses(self, text: str) -> str:
        """Replace the addresses in a text by those of the test servers."""
        text = text.replace("127.0.0.1:8088", f"127.0.0.1:{self.port}").replace(
            "localhost:8088", f"localhost:{self.port}"
        )
        text = text.replace("http://collector:4318", self.upstream)
        return text.replace(TRACE, self._newest_trace()) if TRACE in text else text

    def _newest_trace(self) -> str:
        done = subprocess.run(
            ["odar", "traces", "--json", "-n", "1"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        traces = json.loads(done.stdout or "{}").get("traces")
        assert traces, f"{self.page.path}: no trace to show yet\n{done.stderr}"
        return str(traces[0]["id"])

    def settings(self, text: str) -> str:
        """A settings file whose providers are all the stub."""
        text = re.sub(r'base_url = "[^"]*"', f'base_url = "{self.upstream}/v1"', text)
        named = set(re.findall(r"\[providers\.([\w-]+)\]", text))
        return (
            self._profile(text)
            + text
            + "\n"
            + "".join(self._provider(name) for name in STUBBED if name not in named)
        )

    def write(self, block: Block) -> Path:
        """The file that a block is."""
        file = self.folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        is_settings = block.language == "toml" and block.title != "pyproject.toml"
        file.write_text(self.settings(block.text) if is_settings else self.with_local_addresses(block.text))
        return file

    def shell(self, block: Block) -> None:
        """Run a block's commands; where it shows what they print, that is what they must print."""
        if block.language != "console":
            self._checked(self.with_local_addresses(block.text), block)
            return
        pieces = SPOKEN.split(block.text)
        for command, shown in zip(pieces[1::2], pieces[2::2], strict=True):
            printed = self._checked(self.with_local_addresses(command), block)
            if block.remarks.get("output") != "varies":
                assert matches(shown, printed), f"{block.where}: {command}\nshown:\n{shown}\nprinted:\n{printed}"

    def _checked(self, script: str, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
        wanted = int(block.remarks.get("exit code", 0))
        assert done.returncode == wanted, (
            f"{block.where}: exit code {done.returncode}\n{script}\n{done.stdout}{done.stderr}"
        )
        assert "Traceback" not in done.stderr, f"{block.where}\n{done.stderr}"
        return done.stdout

    def serve(self, block: Block) -> None:
        """Start a block's command and leave it running until the page ends."""
        command = shlex.split(self.with_local_addresses(block.text), comments=True)
        with (self.folder / "server.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stderr=log, text=True)
        self._background.append(process)
        deadline = time.monotonic() + COMMAND_LIMIT_S
        while not _answers(self.port):
            said = (self.folder / "server.log").read_text()
            assert process.poll() is None, f"{block.where}: it ended\n{said}"
            assert time.monotonic() < deadline, f"{block.where}: nobody answers\n{said}"
            time.sleep(0.05)

    def python(self, block: Block) -> None:
        """Run a block as its reader does: as a script in a fresh interpreter, after the blocks above that it needs.

        It must end well and say nothing on standard error, at the end of the interpreter either.
        """
        script = self.folder / "script.py"
        script.write_text(
            "\n\n".join(self.with_local_addresses(text) for text in needed_blocks(block.text, self._blocks))
        )
        self._blocks.append(block.text)
        done = subprocess.run(
            [sys.executable, script.name],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
        )
        assert done.returncode == 0, f"{block.where}\n{done.stdout}{done.stderr}"
        assert done.stderr == "", f"{block.where} says on standard error:\n{done.stderr}"

    def close(self) -> None:
        """End the processes that the page started."""
        for process in self._background:
            process.send_signal(signal.SIGTERM)
        for process in self._background:
            process.wait(timeout=60)


def needed_blocks(text: str, earlier: list[str]) -> list[str]:
    """A block after those of the earlier ones that bind a name which it, or one of them, uses.

    >>> needed_blocks("print(x)", ["x = y", "z = 1", "y = 2"])
    ['x = y', 'y = 2', 'print(x)']
    """
    chosen, missing = [text], _names(text)[0]
    for _ in earlier:  # as often as one may need another
        for other in reversed(earlier):
            used, bound = _names(other)
            if other not in chosen and bound & missing:
                chosen.append(other)
                missing = missing | used
    return [other for other in earlier if other in chosen] + [text]


def _names(text: str) -> tuple[set[str], set[str]]:
    """Names that a block uses without binding them, and names that it binds."""
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.alias(name=name, asname=alias):
                bound.add(alias or name.partition(".")[0])
    return used - bound - set(dir(builtins)), bound


@contextmanager
def page_session(page: Page, folder: Path, commands: Path, upstream: str) -> Iterator[PageSession]:
    """Yield a session and close it at the end."""
    session = PageSession(page, folder, commands, upstream)
    if WITH_KEYS in page.text:
        session.environment |= dict.fromkeys(KEYS, "sk-stub")
    try:
        yield session
    finally:
        session.close()


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; `…` at the end of a line, or alone on one, stands for anything."""
    pattern = "\n".join(
        re.escape(line.rstrip().removesuffix("…")) + (".*" if line.rstrip().endswith("…") else r"\s*")
        for line in shown.strip().splitlines()
    )
    return re.fullmatch(re.sub(r"(?m)^\.\*$", r"(?s:.*)", pattern), printed.strip()) is not None


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:  # nobody there, or not ready yet
        return False


def repository_link(folder: Path, *names: str) -> None:
    """What a page that is read in a checkout may name: links to the repository's own folders."""
    for name in names:
        (folder / name).symlink_to(ROOT / name)
