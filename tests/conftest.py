from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run; `make fuzz` looks for others.
settings.register_profile("odar", deadline=None, max_examples=100, derandomize="FUZZ_TIMES" not in os.environ)
settings.load_profile("odar")

gc.disable()  # collected modules and tests live until the end: scanning them for garbage takes seconds in each process

LONGEST = (
    "docs/test_blocks.py",
    "qa/test_attack.py",
    "security/test_planted_secret.py",
    "providers/test_local.py",
    "cli/test_batch.py",
    "qa/test_chaos.py",
    "cli/test_eval_report.py",
    "lab/recording/test_kill.py",
    "cli/test_calibrate.py",
    "lab/graders/test_mathematics.py",
    "serving/dashboard/test_playground.py",
    "lab/report/test_report.py",
    "cli/test_terminal.py",
    "serving/test_workers.py",
    "serving/test_kill.py",
    "scripts/test_everyday.py",
)
"""The slowest files. They run first, so that none of them starts when the other workers are nearly done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest files first; `make test` distributes them in this order."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Enable garbage collection again, without the loaded modules and tests."""
    gc.freeze()
    gc.enable()


# A shell that runs the tests in the background ignores SIGINT, nohup SIGHUP, and child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An endless iterator of folders, created on first use; tmp_path slows down with their number."""
    place = tmp_path_factory.mktemp("homes")
    return (place / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, homes: Iterator[Path]) -> None:
    """No test sees the developer's own settings, keys, odar.toml or traces."""
    for name in list(os.environ):
        if (name.startswith("ODAR_") and name != "ODAR_CACHE_DIR") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    home = next(homes)
    monkeypatch.setenv("ODAR_OFFLINE", "1")  # `make test` downloads the tiny weights, and no test any others
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A Ray cluster of two nodes; connect to its `address`."""
    from support.ray_cluster import two_nodes

    with two_nodes() as started:
        yield started
