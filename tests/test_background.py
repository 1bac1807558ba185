from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from odar.background import CURRENT_KEY, FairExecutor, run_in_background


def test_an_interrupt_cancels_the_background_work(monkeypatch):
    """Ctrl-C while `odar.ask` waits must not leave calls running in the background."""
    cancelled = threading.Event()
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupted(future: concurrent.futures.Future[None], timeout: float | None = None) -> None:
        assert begun.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_background(work())
    assert cancelled.wait(10)


def test_a_script_exits_without_errors_after_background_work(tmp_path):
    """The default engine is closed while the interpreter exits, when no thread pool takes work any more."""
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit\n"
        "from odar.background import run_in_background, run_in_thread\n"
        "atexit.register(lambda: run_in_background(run_in_thread(lambda: print('closed'))))\n"
        "run_in_background(run_in_thread(lambda: None))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_keys_take_turns_in_a_fair_executor():
    executor = FairExecutor(1, "test")
    begin = threading.Event()
    done = []

    def submit(key: str, name: str) -> concurrent.futures.Future[None]:
        token = CURRENT_KEY.set(key)
        try:
            return executor.submit(done.append, name)
        finally:
            CURRENT_KEY.reset(token)

    executor.submit(begin.wait, 10)
    works = [submit("greedy", f"greedy {number}") for number in range(50)]
    works += [submit("modest", "modest 0"), submit("modest", "modest 1")]
    works[3].cancel()
    begin.set()
    concurrent.futures.wait(works, timeout=10)
    assert done[:4] == ["greedy 0", "modest 0", "greedy 1", "modest 1"]
    assert len(done) == 51
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 / 0).result(10)
    executor.shutdown()


def test_a_failed_work_leaves_no_reference_cycle():
    executor = FairExecutor(1, "test")

    class Body:
        pass

    def fail(body: Body) -> None:
        raise ValueError

    body = Body()
    alive = weakref.ref(body)
    gc.disable()
    try:
        future = executor.submit(fail, body)
        del body
        with pytest.raises(ValueError):
            future.result(10)
        del future
        executor.shutdown()
        assert alive() is None
    finally:
        gc.enable()
