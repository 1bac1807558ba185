from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
import threading

import pytest

from odar.background import Once, run_in_background


async def test_work_is_done_once_however_many_wait():
    started = []
    hold = threading.Event()

    def load() -> None:
        started.append(threading.current_thread().name)
        assert hold.wait(5)

    once = Once(load)
    waiting = [asyncio.create_task(once.wait()) for _ in range(20)]
    await asyncio.sleep(0.05)
    assert not once.done
    hold.set()
    await asyncio.gather(*waiting)
    await once.wait()
    assert (started, once.done) == (["odar-once"], True)


async def test_one_who_leaves_does_not_cancel_it_for_the_others():
    hold = threading.Event()
    once = Once(lambda: hold.wait(5))
    staying = asyncio.create_task(once.wait())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await once.wait()
    hold.set()
    await staying
    assert once.done


async def test_two_loops_share_it():
    hold, done = threading.Event(), []
    once = Once(lambda: done.append(hold.wait(5)))
    other = asyncio.create_task(asyncio.to_thread(lambda: run_in_background(once.wait())))
    mine = asyncio.create_task(once.wait())
    await asyncio.sleep(0.05)
    hold.set()
    await asyncio.gather(other, mine)
    assert done == [True]


async def test_a_failure_reaches_all_who_wait_and_the_next_one_tries_again():
    results = iter([OSError("no disk"), None])

    def load() -> None:
        if (error := next(results)) is not None:
            raise error

    once = Once(load)
    found = await asyncio.gather(once.wait(), once.wait(), return_exceptions=True)
    assert [str(error) for error in found if error] in (["no disk", "no disk"], ["no disk"])
    await once.wait()
    assert once.done


async def test_a_loop_that_is_gone_by_then_does_not_matter():
    hold = threading.Event()
    once = Once(lambda: hold.wait(5))

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await once.wait()

    await asyncio.to_thread(lambda: asyncio.run(impatient()))
    hold.set()
    await once.wait()
    assert once.done


def test_an_interruption_cancels_the_work_before_it_goes_on(monkeypatch):
    """Ctrl-C while `odar.ask` waits: whatever is under way must not go on spending in the background."""
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


def test_a_script_that_asks_once_ends_quietly(tmp_path):
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
