"""The HTTP client of the JDK, which offers HTTP/2 in its first request of every connection."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from support.fault_server import ok

PROGRAM = Path(__file__).parents[2] / "qa" / "clients" / "JavaClient.java"


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK (Debian: default-jdk-headless)")
async def test_questions_of_a_java_client_are_answered(start, up):
    live = await start()
    up.behave(ok("It is Paris."))
    process = await asyncio.create_subprocess_exec(
        "java", str(PROGRAM), "quick", env=os.environ | {"ODAR_URL": live.url},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    results = {row["feature"]: row["result"] for row in map(json.loads, out.decode().splitlines())}
    assert {results.get(name) for name in ("chat", "usage")} == {"ok"}, (results, err.decode())
