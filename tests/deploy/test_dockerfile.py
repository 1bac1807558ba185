"""The Dockerfile, checked without building the image."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from release import audit, lock  # scripts is on the path

from odar.config import load_settings
from support.deploy_files import ROOT, dockerfile, health_command, image_environment
from support.fault_server import FaultServer
from support.gateway_process import Process

LOCK = ROOT / "deploy" / "requirements.txt"
EVALS_LOCK = ROOT / "deploy" / "requirements-evals.txt"


def test_the_environment_is_valid():
    settings = load_settings(
        "tiny", environ={k: v for k, v in image_environment().items() if k.startswith("ODAR_")}
    )
    assert settings.gateway.host == "0.0.0.0"
    assert settings.store.url.startswith("/var/lib/odar/")


def test_the_image_does_not_run_as_root():
    users = [arguments for instruction, arguments in dockerfile() if instruction == "USER"]
    assert users == ["10001:10001"]


def test_copied_files_are_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for instruction, arguments in dockerfile():
        if instruction == "COPY" and not arguments.startswith("--from"):
            for source in arguments.split()[:-1]:
                assert PurePosixPath(source).parts[0] in allowed, source
                assert (ROOT / source).exists(), source


def test_the_image_installs_only_wheels_with_known_hashes():
    installs = [arguments for _, arguments in dockerfile() if "pip install" in arguments]
    assert len(installs) == 3
    assert "--require-hashes --only-binary=:all: -r deploy/requirements.txt" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]  # nothing is fetched
    assert "--require-hashes --only-binary=:all: --no-deps -r /opt/odar/requirements-evals.txt" in installs[2]
    for file in (LOCK, EVALS_LOCK):
        text = file.read_text()
        packages = text.partition("\n")[2].split("\n", 1)[1].replace(" \\\n", "").splitlines()
        assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+(    --hash=sha256:[0-9a-f]{64})+", each) for each in packages)
        assert "://" not in text


def test_every_dependency_of_the_image_is_pinned():
    """Run `make lock` after a change of the dependencies."""
    pins = audit.pinned(LOCK.read_text())
    waiting = [Requirement(each) for each in lock.requirements()]
    assert {"psycopg", "opentelemetry-sdk", "hatchling"} <= {each.name for each in waiting}
    for wanted in waiting:
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), wanted
    project, _ = audit.installed(extras=lock.EXTRAS)
    assert project.keys() - {"odar"} <= pins.keys()
    more = audit.pinned(EVALS_LOCK.read_text())
    assert not pins.keys() & more.keys()
    for wanted in map(Requirement, lock.requirements(("evals",))):
        assert wanted.specifier.contains((pins | more)[canonicalize_name(wanted.name)]), wanted
    with_evals, _ = audit.installed(extras=(*lock.EXTRAS, "evals"))
    assert with_evals.keys() - {"odar"} <= pins.keys() | more.keys()


def test_the_stages_exist():
    froms = [arguments.split() for instruction, arguments in dockerfile() if instruction == "FROM"]
    names = {parts[2] for parts in froms if len(parts) == 3}
    assert froms[-1] == ["evals-${EVALS}"]
    assert {"weights-0", "weights-1", "evals-0", "evals-1"} <= names


@pytest.fixture
async def gateway(tmp_path):
    async with FaultServer() as up:
        process = await Process.start(tmp_path, up)
        yield process
        process.process.terminate()
        await process.process.communicate()


async def check(**environ: str) -> int:
    command = health_command()
    assert command[0] == "python"
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command[1:], env={**os.environ, **environ}, stderr=asyncio.subprocess.DEVNULL
    )
    return await asyncio.wait_for(process.wait(), 60)


async def test_the_health_check_detects_a_running_gateway(gateway):
    assert await check(ODAR_GATEWAY_PORT=gateway.url.rsplit(":", 1)[1]) == 0
    assert await check(ODAR_GATEWAY_PORT="9") != 0


def test_the_command_and_its_options_exist(odar_help):
    (command,) = [json.loads(arguments) for instruction, arguments in dockerfile() if instruction == "CMD"]
    assert command[0] == "serve"
    for option in command[1:]:
        assert option in odar_help


@pytest.fixture
def odar_help():
    from click.testing import CliRunner

    from odar.cli.serve import command

    return CliRunner().invoke(command, ["--help"]).output
