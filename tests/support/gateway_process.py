"""The gateway in its own process, started by `odar serve`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from support.constants import odar_code
from support.fault_server import FaultServer

TOML = """
profile = "tiny"
[providers.up]
kind = "openai"
base_url = "{url}"
[models.m]
provider = "up"
[fast]
model = "m"
[slow]
model = "m"
[gateway]
port = 0
workers = 1
drain_s = {drain}
"""
NOTICE = {"odar.serving.server": "NOTICE_S = 0.4"}


class Process:
    """A gateway in its own process."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, said: str) -> None:
        self.process, self.url, self.said = process, url, said

    @classmethod
    async def start(
        cls,
        folder: Path,
        up: FaultServer,
        *arguments: str,
        drain: float = 5,
        until: str = "only this machine",
        constants: Mapping[str, str] = NOTICE,
    ) -> Process:
        (folder / "odar.toml").write_text(TOML.format(url=up.url, drain=drain))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            odar_code(constants),
            "serve",
            *arguments,
            cwd=folder,
            stderr=asyncio.subprocess.PIPE,
        )
        said = ""
        try:
            async with asyncio.timeout(60):
                while until not in said:
                    line = (await process.stderr.readline()).decode()
                    assert line, said
                    said += line
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        return cls(process, re.search(r"http://\S+", said).group(), said)
