"""The HTTP client of the JDK, which offers HTTP/2 in its first request of every connection."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("JavaClient.java")


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK (Debian: default-jdk-headless)")
async def test_questions_of_a_java_client_are_answered(start):
    live = await start()
    process = await asyncio.create_subprocess_exec(
        "java", str(PROGRAM), live.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert out.decode().splitlines() == ["200 HTTP_1_1 true"] * 3, err.decode()
