"""A llama.cpp model in this process: loaded once, shared, one request at a time; several models share the cores.

The settings make the same request give the same bits on any number of threads and under any load (measured, see
docs/lab-notes.md): no flash attention, and a separate cache for each slot, which keeps the order of the keys fixed.
A prompt that is still in the cache gives slightly different bits from one that is read again.

llama.cpp's threads wait for each other by spinning: one thread too many on a busy machine makes a model ten times
slower. So the number of threads follows the idle cores, and models whose threads do not fit the cores together take
turns.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

Chunk = Mapping[str, Any]
OnChunk = Callable[[Chunk], None]
_T = TypeVar("_T")

_FLOOR_BYTES_PER_S = 3e9
"""Weights that one thread of any suitable machine reads in a second; each token reads all of them once."""
_SHORTEST_MEASURE_S = 0.5
_SILENCE_S = 5.0
_LOCAL_CALL_S = 10.0
_IDLE_SAMPLE_S = 0.08
_WAIT_S = 0.05
_LONGEST_CACHED = 4000
_MARK = secrets.token_hex(8)


class StoppedError(Exception):
    """The request was cancelled, or the engine closed, before the end."""


class TemplateError(Exception):
    """The model's chat template rejects the conversation; carries what it says."""


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
    """Number of the copy, where several copies of one model run at once."""

    @property
    def size(self) -> int:
        """Bytes of the weights; 0 if the file is missing."""
        with suppress(OSError):
            return self.path.stat().st_size
        return 0


_KEY = secrets.token_hex(32)
"""Locks the ports that the runtime opens. A constant, because two models may be loaded at the same moment."""


def load_server(settings: EngineSettings, threads: int) -> Any:
    """Load the model; 0.6 s for 100 MB, 4 s for 1.1 GB."""
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
    params.api_keys = [_KEY]
    params.endpoint_slots = False
    return xllamacpp.Server(params)


# ── cores ───────────────────────────────────────────────────────────────────────────────────────────────────


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(idle: float, size: int = 0) -> int:
    """Threads for so many idle cores and weights of `size` bytes; a core that is three quarters idle counts.

    More than four threads do not help 100 MB of weights, more than eight do not help a gigabyte.

    >>> [threads_for(idle) for idle in (0.0, 0.9, 1.5, 1.8, 30.0)], threads_for(30.0, size=1_100_000_000)
    ([1, 1, 1, 2, 4], 8)
    """
    most = 8 if size > 300_000_000 else 4
    return max(1, min(math.floor(idle + 0.25), most))


def idle_between(before: str, after: str) -> float | None:
    """Idle cores between two readings of /proc/stat; None if they do not tell.

    >>> idle_between("cpu 0 0 0 0 0\\ncpu0 0\\ncpu1 0", "cpu 5 0 5 25 5\\ncpu0 0\\ncpu1 0")
    1.5
    """
    first, second = _ticks(before), _ticks(after)
    if first is None or second is None or (total := sum(second) - sum(first)) <= 0:
        return None
    # Fields 3 and 4 are idle and waiting for a disk; both leave the core to us.
    idle = sum(second[3:5]) - sum(first[3:5])
    cores = sum(line.startswith("cpu") and not line.startswith("cpu ") for line in after.splitlines())
    return cores * idle / total


def idle_cores() -> float:
    """Number of idle cores that this process may use."""
    stat = Path("/proc/stat")
    idle = None
    if stat.exists():
        before = stat.read_text()
        time.sleep(_IDLE_SAMPLE_S)
        idle = idle_between(before, stat.read_text())
    if idle is None:
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        idle = (os.cpu_count() or 1) - load
    return min(idle, usable_cores())


def _ticks(stat: str) -> list[int] | None:
    for line in stat.splitlines():
        if line.startswith("cpu "):
            # Guest time (fields 8 and 9) is already counted in user time.
            return [int(field) for field in line.split()[1:9]]
    return None


class CoreBudget:
    """Cores shared by the models of this process, first come first served: threads never outnumber them."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._free = cores
        self._changed = threading.Condition()
        self._waiting: list[object] = []

    def enqueue(self) -> object:
        """Enter the queue; pass the ticket to `reserve` or `withdraw`."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
        return ticket

    def withdraw(self, ticket: object) -> None:
        """Leave the queue."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    @contextmanager
    def reserve(self, threads: int, cancelled: Callable[[], bool], ticket: object | None = None) -> Iterator[None]:
        """Hold cores for so many threads; more threads than cores count as all of them.

        Raises:
            StoppedError: `cancelled` became true while waiting.
        """
        wanted, ticket = min(threads, self._cores), ticket or self.enqueue()
        with self._changed:
            try:
                while self._waiting[0] is not ticket or self._free < wanted:
                    if cancelled():
                        raise StoppedError
                    self._changed.wait(_WAIT_S)
                self._free -= wanted
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += wanted
                self._changed.notify_all()


core_budget = CoreBudget(usable_cores())
"""Of this process."""


class Pace:
    """Notices when several threads have become slower than one would be.

    Args:
        floor: tokens a second that one thread always reaches.
    """

    def __init__(self, floor: float = 30.0) -> None:
        self._best = floor

    def collapsed(self, tokens: int, seconds: float) -> bool:
        """Whether this rate is under a third of the best one seen, or of the floor.

        >>> pace = Pace()
        >>> pace.collapsed(100, 1.0), pace.collapsed(60, 1.0), pace.collapsed(8, 1.0), pace.collapsed(1, 0.2)
        (False, False, True, False)
        """
        if seconds < _SHORTEST_MEASURE_S:
            return False
        rate = tokens / seconds
        self._best = max(self._best, rate)
        return rate < self._best / 3


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
        cores: CoreBudget = core_budget,
    ) -> None:
        self.settings = settings
        self._cores = cores
        self.closing = threading.Event()
        self._door = threading.Lock()  # no job may be added after the engine was closed
        self._load = load
        self._idle = idle
        self._clock = clock
        self._server: Any = None
        self._threads = 0
        self._pace = self._new_pace()
        self._cached_ids = lru_cache(maxsize=256)(self._ids)  # prompts share their instructions and examples
        self._template = lru_cache(maxsize=64)(self._render_roles)
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any], object | None] | None]
        self._jobs = queue.SimpleQueue()
        self._pending = 0
        self._ticket: object | None = None
        # A daemon, so that an unclosed engine does not keep the interpreter from exiting; atexit closes it.
        self._worker = threading.Thread(target=self._work, name="odar-llamacpp", daemon=True)
        self._worker.start()
        atexit.register(self.close)

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._server is not None

    def submit(self, job: Callable[[], _T], *, generates: bool = True) -> Future[_T]:
        """Run `job` on the engine's thread, after those already waiting.

        A job that generates and can start at once takes its place in the line for the cores now: of two models that
        are asked one after the other, the first gets the cores first, whichever thread wakes up sooner.
        """
        future: Future[_T] = Future()
        with self._door:
            if self.closing.is_set():
                future.set_exception(StoppedError())
            else:
                ticket = self._cores.enqueue() if generates and not self._pending else None
                self._pending += 1
                self._jobs.put((future, job, ticket))
        return future

    def prepare(self) -> None:
        """Load the model unless it is there. Call on the engine's thread."""
        if self._server is None:
            self._threads = self._threads or self.settings.threads or threads_for(self._idle(), self.settings.size)
            self._server = self._load(self.settings, self._threads)

    def generate(self, body: Mapping[str, Any], on_chunk: OnChunk, stop: threading.Event) -> None:
        """Run one completion, handing over its chunks. Call on the engine's thread.

        Raises:
            StoppedError: `stop` was set or the engine closed; the model is free again.
        """
        self.prepare()
        failures: list[BaseException] = []
        first, tokens = 0.0, 0

        def cancelled() -> bool:
            return stop.is_set() or self.closing.is_set()

        def on_data(chunk: Chunk) -> bool:
            """True ends the generation. The runtime prints and ignores exceptions, so none may leave."""
            nonlocal first, tokens
            if cancelled():
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

        ticket, self._ticket = self._ticket, None
        with self._cores.reserve(self._threads, cancelled, ticket):
            first = self._clock()
            refusal = self._server.handle_completions(dict(body), on_data)
        self._watch_pace(tokens, self._clock() - first)
        if failures:
            raise failures[0]
        if cancelled():
            raise StoppedError
        if refusal:
            on_chunk(refusal)

    def chat_prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Token ids of a conversation of (role, text) by the model's chat template. Call on the engine's thread.

        The texts are tokenized as plain text: no control token in them can end a turn. A last turn of the assistant
        stays open, so that the model continues it.

        Raises:
            TemplateError: the template rejects the conversation.
        """
        self.prepare()
        messages = list(messages)
        roles = tuple(role for role, _ in messages)
        try:
            pieces = self._template(roles)
        except TemplateError:
            if roles[:2] != ("system", "user"):
                raise
            # Some templates have no system turn: their models read instructions in the user's first one.
            messages[:2] = [("user", f"{messages[0][1]}\n\n{messages[1][1]}")]
            pieces = self._template(roles[1:])
        prompt: list[int] = []
        for number, piece in enumerate(pieces):
            if number % 2:
                text, special = messages[int(piece)][1], False
            else:
                text, special = piece, True
            ids = self._cached_ids if len(text) < _LONGEST_CACHED else self._ids
            prompt += ids(text, special, number == 0) if text else ()
        return prompt

    def _render_roles(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Return the template's text for these roles with, at odd places, the index of the message to insert."""
        marks = [f"[[{_MARK}:{number}]]" for number in range(len(roles))]
        turns = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
        status, body = self._call("/apply-template", {"messages": turns})
        if status != 200:
            error = body.get("error") or {}
            raise TemplateError(str(error.get("message", "rejected")).splitlines()[0][:200])
        pieces, rest = [], str(body["prompt"])
        for number, mark in enumerate(marks):
            before, found, rest = rest.partition(mark)
            if not found:
                raise TemplateError(f"it leaves out the {roles[number]} message at place {number + 1}")
            pieces += [before, str(number)]
        return (*pieces, rest)

    def tokenize(self, text: str) -> list[Mapping[str, Any]]:
        """The tokens of a plain text, each with its id and its piece. Call on the engine's thread."""
        return self._tokens(text, with_pieces=True, parse_special=False, add_special=False)

    def _ids(self, text: str, special: bool, first: bool) -> tuple[int, ...]:
        """Token ids of a text; `special` reads control tokens in it, `first` adds what begins every prompt."""
        return tuple(self._tokens(text, with_pieces=False, parse_special=special, add_special=first))

    def _tokens(self, text: str, **options: bool) -> list[Any]:
        tokens: list[Any] = self._call("/tokenize", {"content": text, **options})[1]["tokens"]
        return tokens

    def _call(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Status and body of a request to the runtime's own port, the only way to its tokenizer and template."""
        import http.client

        self.prepare()
        address = str(self._server.listening_address).removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=_LOCAL_CALL_S)
        try:
            headers = {"authorization": f"Bearer {_KEY}", "content-type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def close(self) -> None:
        """Stop the running request, drop the waiting ones, free the model. Idempotent, from any thread."""
        atexit.unregister(self.close)
        with self._door:
            self.closing.set()
            self._jobs.put(None)
        if threading.current_thread() is not self._worker:
            self._worker.join()

    def _watch_pace(self, tokens: int, seconds: float) -> None:
        silent = tokens == 0 and seconds < _SILENCE_S  # cancelled early: says nothing about the pace
        if not silent and self._pace.collapsed(tokens, seconds) and self._threads > 1:
            self._threads = 1
            self._pace = self._new_pace()
            self._server = None

    def _new_pace(self) -> Pace:
        return Pace(min(30.0, _FLOOR_BYTES_PER_S / max(self.settings.size, 1)))

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job, self._ticket = item
            try:
                if not future.set_running_or_notify_cancel():
                    continue
                if self.closing.is_set():
                    raise StoppedError
                result = job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                if self._ticket is not None:  # the job ended before it generated anything
                    self._cores.withdraw(self._ticket)
                    self._ticket = None
                with self._door:
                    self._pending -= 1
                del item, future, job
        self._server = None


class EnginePool:
    """Engines by their settings, with the number of providers that use each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[EngineSettings, tuple[Engine, int]] = {}

    def acquire(self, settings: EngineSettings) -> Engine:
        """The engine with these settings, made if there is none yet."""
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


engines = EnginePool()
"""The engines of this process: agents with the same model share one loaded copy."""
