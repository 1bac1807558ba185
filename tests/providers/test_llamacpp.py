"""Cores, pace and the engine, with a substitute for the runtime."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odar.providers import llamacpp
from odar.providers.llamacpp import (
    CoreBudget,
    Engine,
    EngineSettings,
    StoppedError,
    idle_between,
    idle_cores,
    threads_for,
)


def stat(*ticks: int, cores: int = 2) -> str:
    lines = ["cpu  " + " ".join(map(str, ticks)), *[f"cpu{n} 0 0 0 0" for n in range(cores)], "intr 5 5", "ctxt 9"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("after", "idle"),
    [
        ((0, 0, 0, 16, 0, 0, 0, 0, 0, 0), 2.0),
        ((8, 0, 0, 8, 0, 0, 0, 0, 0, 0), 1.0),
        ((8, 0, 4, 0, 4, 0, 0, 0, 0, 0), 0.5),  # waiting for a disk is idle
        ((16, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0.0),
        ((8, 0, 0, 0, 0, 0, 0, 8, 0, 0), 0.0),  # stolen by the host is not idle
        ((8, 0, 0, 8, 0, 0, 0, 0, 8, 0), 1.0),  # guests are part of user time already
    ],
)
def test_idle_between(after: tuple[int, ...], idle: float) -> None:
    assert idle_between(stat(*[0] * 10), stat(*after)) == idle


def test_readings_that_say_nothing() -> None:
    assert idle_between(stat(1, 1, 1, 1), stat(1, 1, 1, 1)) is None
    assert idle_between("", "intr 5") is None


def test_this_machine() -> None:
    assert 0 <= max(idle_cores(), 0) <= (os.cpu_count() or 1)


def test_load_average_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(os, "getloadavg", lambda: (float(os.cpu_count() or 1), 0.0, 0.0), raising=False)
    assert threads_for(idle_cores()) == 1


def test_models_whose_threads_do_not_fit_together_take_turns() -> None:
    budget, running, most, lock = CoreBudget(2), 0, 0, threading.Lock()
    inside, leave = threading.Event(), threading.Event()

    def work(threads: int) -> None:
        nonlocal running, most
        with budget.reserve(threads, lambda: False):
            with lock:
                running += threads
                most = max(most, running)
            inside.set()
            assert leave.wait(10)
            with lock:
                running -= threads

    workers = [threading.Thread(target=work, args=(threads,)) for threads in (2, 2, 1, 1)]
    for worker in workers:
        worker.start()
    assert inside.wait(10)
    leave.set()
    for worker in workers:
        worker.join(10)
    assert (most, budget._free) == (2, 2)


def test_more_threads_than_cores_count_as_all_of_them() -> None:
    budget = CoreBudget(2)
    with budget.reserve(8, lambda: False):
        assert budget._free == 0
        with pytest.raises(StoppedError), budget.reserve(1, lambda: True):
            raise AssertionError("no core was free")
    with budget.reserve(1, lambda: True):  # free cores need no waiting
        assert budget._free == 1
    assert not budget._waiting


class FakeServer:
    """A runtime that sends `tokens` chunks, each taking `seconds` on the fake clock."""

    def __init__(self, clock: list[float], tokens: int, seconds: float) -> None:
        self.clock, self.tokens, self.seconds = clock, tokens, seconds

    def handle_completions(self, body: dict[str, Any], on_data: Callable[[dict[str, Any]], bool]) -> None:
        for _ in range(self.tokens):
            self.clock[0] += self.seconds
            if on_data({"choices": [{"index": 0, "text": "x"}]}):
                return


@pytest.fixture
def slow_engine() -> Iterator[Callable[..., tuple[Engine, list[int]]]]:
    made: list[Engine] = []

    def make(rates: list[float], idle: float = 2.0) -> tuple[Engine, list[int]]:
        clock, loads = [0.0], []

        def load(settings: EngineSettings, threads: int) -> FakeServer:
            loads.append(threads)
            server = FakeServer(clock, 100, 0.0)
            steps = iter(rates)
            original = server.handle_completions

            def handle(body: dict[str, Any], on_data: Callable[[dict[str, Any]], bool]) -> None:
                server.seconds = 1 / next(steps)
                original(body, on_data)

            server.handle_completions = handle  # type: ignore[method-assign]
            return server

        settings = EngineSettings(Path("x"), threads=0, context=64, parallel=1)
        made.append(Engine(settings, load=load, idle=lambda: idle, clock=lambda: clock[0]))
        return made[-1], loads

    yield make
    for engine in made:
        engine.close()


@pytest.mark.parametrize(
    ("rates", "loads"),
    [
        ([100, 60, 90], [2]),  # ordinary variation
        ([100, 20, 90], [2, 1]),  # collapsed against its own best
        ([8, 90, 90], [2, 1]),  # collapsed from the start
    ],
)
def test_reloads_with_one_thread_when_the_pace_collapses(
    slow_engine: Callable[..., tuple[Engine, list[int]]], rates: list[float], loads: list[int]
) -> None:
    engine, loaded = slow_engine(rates)
    for _ in rates:
        engine.submit(lambda: engine.generate({}, lambda chunk: None, threading.Event())).result(5)
    assert loaded == loads


def test_one_thread_is_never_reloaded(slow_engine: Callable[..., tuple[Engine, list[int]]]) -> None:
    engine, loaded = slow_engine([100, 1, 1], idle=0.4)
    for _ in range(3):
        engine.submit(lambda: engine.generate({}, lambda chunk: None, threading.Event())).result(5)
    assert loaded == [1]


def test_engine_stops_and_reports(slow_engine: Callable[..., tuple[Engine, list[int]]]) -> None:
    engine, _ = slow_engine([100, 100, 100])
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        engine.submit(lambda: engine.generate({}, lambda chunk: None, stop)).result(5)
    with pytest.raises(ZeroDivisionError):  # an exception in the receiver comes out, it is not printed
        engine.submit(lambda: engine.generate({}, lambda chunk: 1 / 0, threading.Event())).result(5)  # type: ignore[arg-type,return-value]
    engine.close()
    with pytest.raises(StoppedError):
        engine.submit(lambda: None).result(5)


def test_providers_share_an_engine() -> None:
    settings = EngineSettings(Path("nowhere"), threads=1, context=64, parallel=1)
    shared = llamacpp.EnginePool()
    one, two = shared.acquire(settings), shared.acquire(settings)
    assert one is two
    shared.release(one)
    assert not one.closing.is_set()
    shared.release(two)
    assert one.closing.is_set()


def test_two_models_that_load_at_the_same_moment_share_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is locked with the key that its engine sends; a key made at first use was once two."""
    together, keys = threading.Barrier(2), []

    class Parameters:
        def __getattr__(self, name: str) -> Any:
            return Parameters()

    runtime = types.SimpleNamespace(
        CommonParams=Parameters,
        llama_flash_attn_type=Parameters(),
        Server=lambda params: keys.append(params.api_keys),
    )
    monkeypatch.setitem(sys.modules, "xllamacpp", runtime)

    def load(settings: EngineSettings, threads: int) -> object:
        together.wait(10)
        llamacpp.load_server(settings, threads)
        return object()

    engines = [Engine(EngineSettings(Path("x"), 1, 64, 1, copy), load=load) for copy in range(2)]
    try:
        for future in [engine.submit(engine.prepare) for engine in engines]:
            future.result(10)
    finally:
        for engine in engines:
            engine.close()
    assert keys == [[llamacpp._KEY]] * 2


def test_models_answer_in_the_order_in_which_they_were_asked() -> None:
    """The first is slow to start, and is still the first to get the cores."""
    cores, order, started = CoreBudget(2), [], threading.Event()

    class Server:
        def __init__(self, name: str) -> None:
            self.name = name

        def handle_completions(self, body: dict[str, Any], on_data: Callable[[dict[str, Any]], bool]) -> None:
            order.append(self.name)

    def engine(name: str) -> Engine:
        return Engine(EngineSettings(Path(name), 2, 64, 1), load=lambda *_: Server(name), cores=cores)

    def ask(engine: Engine, before: Callable[[], object]) -> Callable[[], None]:
        def job() -> None:
            before()
            engine.generate({}, lambda chunk: None, threading.Event())

        return job

    fast, slow = engine("fast"), engine("slow")
    try:
        first = fast.submit(ask(fast, lambda: started.wait(10)))
        second = slow.submit(ask(slow, started.set))
        failing = slow.submit(lambda: 1 / 0)
        first.result(10)
        second.result(10)
        with pytest.raises(ZeroDivisionError):
            failing.result(10)
        third = fast.submit(lambda: None)  # generates nothing: its place in the line is given up
        third.result(10)
        slow.submit(ask(slow, lambda: None)).result(10)
    finally:
        fast.close()
        slow.close()
    assert order == ["fast", "slow", "slow"]
    assert (cores._free, cores._waiting) == (2, [])


def test_a_cancelled_job_gives_up_its_place() -> None:
    cores, leave = CoreBudget(1), threading.Event()
    engine = Engine(EngineSettings(Path("x"), 1, 64, 1), load=lambda *_: object(), cores=cores)
    try:
        running = engine.submit(lambda: leave.wait(10))
        waiting = engine.submit(lambda: None)
        assert waiting.cancel()
        leave.set()
        running.result(10)
        engine.submit(lambda: None).result(10)
    finally:
        engine.close()
    assert cores._waiting == []
