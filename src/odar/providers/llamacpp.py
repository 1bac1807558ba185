"""A llama.cpp model inside this process: loaded once, shared, one request at a time.

Settings here are chosen so that the same request gives the same bits on any number of threads, whatever runs
beside it (measured, see docs/lab-notes.md): no flash attention, and a cache of its own for each slot, which keeps
the order of the keys fixed. A prompt that is still in the cache gives other bits than one that is read anew.
"""

from __future__ import annotations

import atexit
import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from odar.providers.cores import idle_cores, threads_for

Chunk = Mapping[str, Any]
OnChunk = Callable[[Chunk], None]
_T = TypeVar("_T")

_FLOOR_TOKENS_PER_S = 30.0
"""What any machine that can run the model at all reaches with one thread."""
_SHORTEST_MEASURE_S = 0.5
_SILENCE_S = 5.0
_TOKENIZE_S = 10.0


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What makes two engines the same one."""

    path: Path
    threads: int
    """0 for as many as there are idle cores when the model is loaded."""
    context: int
    """Tokens of prompt and answer together, for each sample."""
    parallel: int
    """Samples that run in one batch."""
    copy: int = 0
    """Further copies of one model, to run several requests at once, differ in this alone."""


class StoppedError(Exception):
    """The request was given up, or the engine closed, before the end."""


@cache
def _key() -> str:
    return secrets.token_hex(32)


def load_server(settings: EngineSettings, threads: int) -> Any:
    """Load the model; about 0.6 s."""
    import xllamacpp  # 34 MB of machine code: not before it is needed

    params = xllamacpp.CommonParams()
    params.model.path = str(settings.path)
    params.n_parallel = settings.parallel
    params.n_ctx = settings.context * settings.parallel
    params.kv_unified = False
    # Its sums depend on the number of threads, and with them which token is drawn: the same seed would give another
    # answer on a busy machine.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.n_ubatch = 32
    params.n_batch = 64  # a long prompt can be given up between batches
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0  # by default it may take 8 GB for old prompts
    params.cache_idle_slots = False
    params.warmup = False
    params.verbosity = -1
    # The runtime opens a port on 127.0.0.1 that cannot be turned off: lock it. The key never leaves this process.
    params.api_keys = [_key()]
    params.endpoint_slots = False
    return xllamacpp.Server(params)


class Pace:
    """Notices when several threads have become slower than one would be."""

    def __init__(self) -> None:
        self._best = 0.0

    def collapsed(self, tokens: int, seconds: float) -> bool:
        """Whether this rate is under a third of the best one seen, or of what one thread always reaches.

        >>> pace = Pace()
        >>> pace.collapsed(100, 1.0), pace.collapsed(60, 1.0), pace.collapsed(8, 1.0), pace.collapsed(1, 0.2)
        (False, False, True, False)
        """
        if seconds < _SHORTEST_MEASURE_S:
            return False
        rate = tokens / seconds
        self._best = max(self._best, rate)
        return rate < max(self._best, _FLOOR_TOKENS_PER_S) / 3


class Engine:
    """A model and the one thread that talks to it, first come first served.

    Requests are not batched with each other: on a CPU that gains little, and it would make what one
    request samples depend on when another arrived.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        load: Callable[[EngineSettings, int], Any] = load_server,
        idle: Callable[[], float] = idle_cores,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.closing = threading.Event()
        self._door = threading.Lock()  # no job may slip in behind the last one
        self._load = load
        self._idle = idle
        self._clock = clock
        self._server: Any = None
        self._threads = 0
        self._pace = Pace()
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        # A daemon, so that an unclosed engine does not keep the interpreter from exiting; atexit closes it.
        self._worker = threading.Thread(target=self._work, name="odar-llamacpp", daemon=True)
        self._worker.start()
        atexit.register(self.close)

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._server is not None

    def submit(self, job: Callable[[], _T]) -> Future[_T]:
        """Run `job` on the engine's thread, after those already waiting."""
        future: Future[_T] = Future()
        with self._door:
            if self.closing.is_set():
                future.set_exception(StoppedError())
            else:
                self._jobs.put((future, job))
        return future

    def prepare(self) -> None:
        """Load the model unless it is there. Call on the engine's thread."""
        if self._server is None:
            self._threads = self._threads or self.settings.threads or threads_for(self._idle())
            self._server = self._load(self.settings, self._threads)

    def generate(self, body: Mapping[str, Any], on_chunk: OnChunk, stop: threading.Event) -> None:
        """Run one completion, handing over its chunks. Call on the engine's thread.

        Raises:
            StoppedError: `stop` was set or the engine closed; the model is free again.
        """
        self.prepare()
        failures: list[BaseException] = []
        started = self._clock()
        first = started
        tokens = 0

        def on_data(chunk: Chunk) -> bool:
            """True ends the generation. The runtime prints and ignores exceptions, so none may leave."""
            nonlocal first, tokens
            if stop.is_set() or self.closing.is_set():
                return True
            try:
                if chunk.get("choices") and "prompt_progress" not in chunk:
                    tokens += 1
                    first = self._clock() if tokens == 1 else first
                on_chunk(chunk)
            except BaseException as error:
                failures.append(error)
                return True
            return False

        refusal = self._server.handle_completions(dict(body), on_data)
        self._watch_pace(tokens, self._clock() - first)
        if failures:
            raise failures[0]
        if stop.is_set() or self.closing.is_set():
            raise StoppedError
        if refusal:
            on_chunk(refusal)

    def tokenize(self, text: str) -> list[Mapping[str, Any]]:
        """The tokens of a text, each with its id and its piece. Call on the engine's thread.

        Only the runtime's own port can do it; control tokens in the text are taken as plain text.
        """
        import http.client

        self.prepare()
        address = str(self._server.listening_address).removeprefix("http://")
        body = json.dumps({"content": text, "with_pieces": True, "add_special": False, "parse_special": False})
        connection = http.client.HTTPConnection(address, timeout=_TOKENIZE_S)
        try:
            headers = {"authorization": f"Bearer {_key()}", "content-type": "application/json"}
            connection.request("POST", "/tokenize", body, headers)
            tokens: list[Mapping[str, Any]] = json.loads(connection.getresponse().read())["tokens"]
        finally:
            connection.close()
        return tokens

    def close(self) -> None:
        """Stop what runs, drop what waits, free the model. Idempotent, from any thread."""
        atexit.unregister(self.close)
        with self._door:
            self.closing.set()
            self._jobs.put(None)
        if threading.current_thread() is not self._worker:
            self._worker.join()

    def _watch_pace(self, tokens: int, seconds: float) -> None:
        silent = tokens == 0 and seconds < _SILENCE_S  # given up early: says nothing about the pace
        if not silent and self._pace.collapsed(tokens, seconds) and self._threads > 1:
            self._threads = 1
            self._pace = Pace()
            self._server = None

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if self.closing.is_set():
                    raise StoppedError
                result = job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, job
        self._server = None


class _Shared:
    """Engines by their settings, with the number of providers that use each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[EngineSettings, tuple[Engine, int]] = {}

    def acquire(self, settings: EngineSettings) -> Engine:
        """The engine with these settings, made if nobody has it yet."""
        with self._lock:
            engine, users = self._engines.get(settings) or (Engine(settings), 0)
            self._engines[settings] = (engine, users + 1)
            return engine

    def release(self, engine: Engine) -> None:
        """Give an engine back; the last user closes it."""
        with self._lock:
            kept, users = self._engines[engine.settings]
            if users > 1:
                self._engines[engine.settings] = (kept, users - 1)
                return
            del self._engines[engine.settings]
        engine.close()


engines = _Shared()
"""Process-wide, because fast and slow agents share one set of weights."""
