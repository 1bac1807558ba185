"""Cores, speed and the engine, with a fake runtime."""

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
    Engine,
    StoppedError,
    idle_cores,
    reserved_cores,
)


def test_idle_and_io_wait_time_count_as_idle_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[0] * 8, [6, 0, 2, 4, 4, 0, 0, 0]])
    monkeypatch.setattr(llamacpp, "_cpu_ticks", lambda: next(readings))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(llamacpp, "usable_cores", lambda: 2)
    assert idle_cores() == 1.0


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp, "usable_cores", lambda: 2)
    monkeypatch.setattr(llamacpp, "_free_cores", threading.Semaphore(2))


@pytest.mark.usefixtures("two_cores")
def test_models_with_too_many_threads_together_take_turns() -> None:
    running, most, lock = 0, 0, threading.Lock()
    inside, leave = threading.Event(), threading.Event()

    def work(threads: int) -> None:
        nonlocal running, most
        with reserved_cores(threads, lambda: False):
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
    assert most == 2


@pytest.mark.usefixtures("two_cores")
def test_more_threads_than_cores_count_as_all_of_them() -> None:
    with (
        reserved_cores(8, lambda: False),
        pytest.raises(StoppedError),
        reserved_cores(1, lambda: True),
    ):
        raise AssertionError("no core was free")
    for _ in range(2):
        with reserved_cores(2, lambda: True):  # free cores need no waiting
            pass


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
def weights(tmp_path: Path) -> Path:
    """A small file in place of weights."""
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def slow_engine(
    monkeypatch: pytest.MonkeyPatch, weights: Path
) -> Iterator[Callable[..., tuple[Engine, list[int]]]]:
    made: list[Engine] = []

    def make(rates: list[float], idle: float = 2.0) -> tuple[Engine, list[int]]:
        clock, loads = [0.0], []

        def load(path: Path, context: int, threads: int) -> FakeServer:
            loads.append(threads)
            server = FakeServer(clock, 100, 0.0)
            steps = iter(rates)
            original = server.handle_completions

            def handle(body: dict[str, Any], on_data: Callable[[dict[str, Any]], bool]) -> None:
                server.seconds = 1 / next(steps)
                original(body, on_data)

            server.handle_completions = handle  # type: ignore[method-assign]
            return server

        monkeypatch.setattr(llamacpp, "load_server", load)
        monkeypatch.setattr(llamacpp, "idle_cores", lambda: idle)
        monkeypatch.setattr(llamacpp, "monotonic", lambda: clock[0])
        made.append(Engine(weights, threads=0, context=64))
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


def test_the_expected_pace_is_that_of_weights_that_were_downloaded_later(
    slow_engine: Callable[..., tuple[Engine, list[int]]], weights: Path
) -> None:
    engine, loaded = slow_engine([8, 8])
    os.truncate(weights, 3_000_000_000)
    for _ in range(2):
        engine.submit(lambda: engine.generate({}, lambda chunk: None, threading.Event())).result(5)
    assert loaded == [2]


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
    one, two = (llamacpp.acquire_engine(Path("nowhere"), threads=1, context=64) for _ in range(2))
    assert one is two
    llamacpp.release_engine(one)
    assert not one.closing.is_set()
    llamacpp.release_engine(two)
    assert one.closing.is_set()


def test_models_loaded_at_the_same_time_share_the_key(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    """Each server requires the key that its engine sends, so both must get the same one."""
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

    real = llamacpp.load_server

    def load(path: Path, context: int, threads: int) -> object:
        together.wait(10)
        real(path, context, threads)
        return object()

    monkeypatch.setattr(llamacpp, "load_server", load)
    engines = [Engine(weights, 1, 64, copy) for copy in range(2)]
    try:
        for future in [engine.submit(engine.prepare) for engine in engines]:
            future.result(10)
    finally:
        for engine in engines:
            engine.close()
    assert keys == [[llamacpp._SERVER_KEY]] * 2
