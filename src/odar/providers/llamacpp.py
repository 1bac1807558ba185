"""llama.cpp models in this process: each loaded once, shared, one request at a time.

The settings make the same request give the same bits on any number of threads and under any load (measured, see
docs/lab-notes.md): no flash attention, and a separate cache for each slot, which keeps the order of the keys fixed.
A prompt that is still in the cache gives slightly different bits from one that is read again.

llama.cpp's threads wait for each other by spinning: one thread too many on a busy machine makes a model ten times
slower. So the number of threads depends on the idle cores, and models that would need more threads than there are
cores take turns.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from odar.errors import ProviderError

Chunk = Mapping[str, Any]
OnChunk = Callable[[Chunk], None]
_T = TypeVar("_T")
PARALLEL = 8
"""Samples in one batch. Each slot keeps its prompt, so that the steps of a question do not evict each other's."""
_MIN_BYTES_PER_S = 3e9
"""Weights that one thread of any suitable machine reads in a second; each token reads all of them once."""
_MIN_MEASURE_S = 0.5
"""Shorter generations say nothing about the speed."""
_MAX_SILENCE_S = 5.0
"""Time without any token after which a model counts as slow."""
_SERVER_TIMEOUT_S = 10.0
"""Timeout of a request to the runtime's own port."""
_IDLE_SAMPLE_S = 0.08
_CORE_WAIT_S = 0.05
_MAX_CACHED_CHARACTERS = 4000
"""Token ids of longer texts are not cached."""
_PLACEHOLDER = secrets.token_hex(8)
"""Marks the places of the messages in a rendered chat template."""
_SERVER_KEY = secrets.token_hex(32)
"""API key of the ports that the runtime opens. A constant, because two models may be loaded at the same moment."""
STREAMED = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_progress": True,  # a chunk after each part of a long prompt, where a request can be cancelled
    "cache_prompt": True,
}
"""Fields of every request."""


class StoppedError(Exception):
    """The request was cancelled, or the engine closed, before the end."""


def runtime_error(error: Mapping[str, Any]) -> ProviderError:
    """The error for a rejection by the runtime; `LocalProvider` adds its name."""
    kind = str(error.get("type", ""))
    status = int(error.get("code", 500))
    message = f"the local runtime rejected the request: {error.get('message', kind)}"
    if kind == "exceed_context_size_error":
        message = (
            f"the prompt has {error.get('n_prompt_tokens')} tokens and the local model's context is "
            f"{error.get('n_ctx')}: shorten it, or choose a model with a longer one"
        )
    return ProviderError(message, status=status, code=kind, retryable=status >= 500)


def load_server(path: Path, context: int, threads: int) -> Any:
    """Load a model; takes 0.6 s for 100 MB, 4 s for 1.1 GB."""
    import xllamacpp  # 34 MB of machine code, loaded on demand

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = PARALLEL
    params.n_ctx = context * PARALLEL
    params.kv_unified = False
    # With flash attention, sums depend on the number of threads, so the same seed could give another answer.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.n_ubatch = 32
    params.n_batch = 64  # a request can be cancelled between batches of its prompt
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0  # the default keeps up to 8 GB of old prompts
    params.cache_idle_slots = False
    params.warmup = False
    params.verbosity = -1
    # The runtime opens a port on 127.0.0.1 that cannot be turned off. The key never leaves this process.
    params.api_keys = [_SERVER_KEY]
    params.endpoint_slots = False
    return xllamacpp.Server(params)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(idle: float, size: int = 0) -> int:
    """The number of threads; a core that is three quarters idle counts.

    More than four threads do not speed up 100 MB of weights, more than eight do not speed up a gigabyte.

    >>> [threads_for(idle) for idle in (0.0, 0.9, 1.5, 1.8, 30.0)], threads_for(30.0, size=1_100_000_000)
    ([1, 1, 1, 2, 4], 8)
    """
    limit = 8 if size > 300_000_000 else 4
    return max(1, min(math.floor(idle + 0.25), limit))


def idle_cores() -> float:
    """The number of idle cores that this process may use; all of them if the system does not report it."""
    try:
        before = _cpu_ticks()
        sleep(_IDLE_SAMPLE_S)
        ticks = [after - first for after, first in zip(_cpu_ticks(), before, strict=True)]
    except OSError:
        return usable_cores()
    # Fields 3 and 4 are idle time and waiting for a disk; the core is free in both.
    share = sum(ticks[3:5]) / max(1, sum(ticks))
    return min(share * (os.cpu_count() or 1), usable_cores())


def _cpu_ticks() -> list[int]:
    """The first line of /proc/stat without guest time, which is part of user time."""
    return [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]


_free_cores = threading.Semaphore(usable_cores())
_reservation = threading.Lock()
"""Held while cores are reserved, so that two requests never wait with a part of the cores each."""


@contextmanager
def reserved_cores(threads: int, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Reserve cores for this many threads, so that the models of this process never use more threads than cores.

    Raises:
        StoppedError: `cancelled` became true while waiting.
    """
    wanted = min(threads, usable_cores())
    reserved = 0
    try:
        with _reservation:
            while reserved < wanted:
                if _free_cores.acquire(timeout=_CORE_WAIT_S):
                    reserved += 1
                elif cancelled():
                    raise StoppedError
        yield
    finally:
        if reserved:
            _free_cores.release(reserved)


class Engine:
    """A model and the only thread that uses it, first come first served.

    Requests are not batched with each other: on a CPU that gains little, and the samples of one request would
    depend on the arrival of another.

    Args:
        path: the GGUF file.
        threads: 0 for the number of idle cores when the model is loaded.
        context: tokens of prompt and answer together, for each sample.
        copy: number of the copy, if several copies of one model run at once.
    """

    def __init__(self, path: Path, threads: int, context: int, copy: int = 0) -> None:
        self.path = path
        self.key = (path, threads, context, copy)
        self.users = 0
        self.requests = 0
        self.closing = threading.Event()
        self._server: Any = None
        self._context = context
        self._threads = threads
        self._best_rate = 0.0
        self._cached_ids = lru_cache(maxsize=256)(self._ids)  # prompts share their instructions and examples
        self._template = lru_cache(maxsize=64)(self._render_template)
        self._worker = ThreadPoolExecutor(1, "odar-llamacpp")
        atexit.register(self.close)

    @property
    def loaded(self) -> bool:
        return self._server is not None

    def submit(self, job: Callable[[], _T]) -> Future[_T]:
        """Run `job` on the engine's thread, after those already waiting; StoppedError if the engine is closed."""

        def run() -> _T:
            if self.closing.is_set():
                raise StoppedError
            return job()

        try:
            return self._worker.submit(run)
        except RuntimeError:  # shut down
            raise StoppedError from None

    def prepare(self) -> None:
        """Load the model if it is not loaded. Call on the engine's thread."""
        if self._server is None:
            size = self.path.stat().st_size
            self._best_rate = min(30.0, _MIN_BYTES_PER_S / max(size, 1))
            self._threads = self._threads or threads_for(idle_cores(), size)
            self._server = load_server(self.path, self._context, self._threads)

    def generate(self, body: Mapping[str, Any], on_chunk: OnChunk, stop: threading.Event) -> None:
        """Run one completion and pass its chunks to `on_chunk`. Call on the engine's thread.

        Raises:
            StoppedError: `stop` was set or the engine closed; the model is free again.
            ProviderError: the runtime rejected the request.
        """
        self.prepare()
        failures: list[BaseException] = []
        first = 0.0
        tokens = 0

        def cancelled() -> bool:
            return stop.is_set() or self.closing.is_set()

        def on_data(chunk: Chunk) -> bool:
            """Return True to end the generation. Raises nothing, because the runtime only prints exceptions."""
            nonlocal first, tokens
            if cancelled():
                return True
            try:
                if "error" in chunk:
                    raise runtime_error(chunk["error"])
                if chunk.get("choices") and "prompt_progress" not in chunk:
                    tokens += 1
                    first = monotonic() if tokens == 1 else first
                on_chunk(chunk)
            except BaseException as error:
                failures.append(error)
                return True
            return False

        with reserved_cores(self._threads, cancelled):
            first = monotonic()
            rejection = self._server.handle_completions(dict(body), on_data)
        self._check_speed(tokens, monotonic() - first)
        # report how it ended
        if failures:
            raise failures.pop(0)  # its traceback refers to this list
        if cancelled():
            raise StoppedError
        if rejection:
            raise runtime_error(rejection["error"])

    def _check_speed(self, tokens: int, seconds: float) -> None:
        """Reload the model with one thread if several have become slower than one would be."""
        if self._threads > 1 and seconds >= (_MIN_MEASURE_S if tokens else _MAX_SILENCE_S):
            rate = tokens / seconds
            if rate < self._best_rate / 3:
                self._threads = 1
                self._server = None
            self._best_rate = max(self._best_rate, rate)

    def chat_prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """The token ids of a conversation of (role, text) pairs. Call on the engine's thread.

        Uses the model's chat template. Texts are tokenized as plain text: no control token in them can end a turn.
        A last turn of the assistant stays open, so that the model continues it.

        Raises:
            ProviderError: the template rejects the conversation.
        """
        self.prepare()
        messages = list(messages)
        roles = tuple(role for role, _ in messages)
        try:
            pieces = self._template(roles)
        except ProviderError:
            if roles[:2] != ("system", "user"):
                raise
            # Some templates have no system turn: put the instructions into the first user turn.
            messages[:2] = [("user", f"{messages[0][1]}\n\n{messages[1][1]}")]
            pieces = self._template(roles[1:])
        prompt: list[int] = []
        for number, piece in enumerate(pieces):
            is_template = number % 2 == 0
            text = piece if is_template else messages[int(piece)][1]
            if text:
                ids = self._cached_ids if len(text) < _MAX_CACHED_CHARACTERS else self._ids
                prompt += ids(text, is_template, number == 0)
        return prompt

    def _render_template(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """The template's text for these roles, with the index of the message to insert at odd places."""
        marks = [f"[[{_PLACEHOLDER}:{number}]]" for number in range(len(roles))]
        turns = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
        status, body = self._call("/apply-template", {"messages": turns})
        if status != 200:
            error = body.get("error") or {}
            raise self._template_error(str(error.get("message", "rejected")).splitlines()[0][:200])
        pieces = []
        rest = str(body["prompt"])
        for number, mark in enumerate(marks):
            before, found, rest = rest.partition(mark)
            if not found:
                raise self._template_error(f"it leaves out message {number + 1} ({roles[number]})")
            pieces += [before, str(number)]
        return (*pieces, rest)

    def _template_error(self, reason: str) -> ProviderError:
        name = self.path.name
        return ProviderError(f"the chat template of {name} rejects the conversation: {reason}", status=400)

    def _ids(self, text: str, special: bool, first: bool) -> tuple[int, ...]:
        """The token ids of a text; `special` parses control tokens, `first` adds the start of a prompt."""
        body = {"content": text, "with_pieces": False, "parse_special": special, "add_special": first}
        return tuple(self._call("/tokenize", body)[1]["tokens"])

    def _call(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Status and body of a request to the runtime's port, the only access to tokenizer and template."""
        from http.client import HTTPConnection

        self.prepare()
        address = str(self._server.listening_address).removeprefix("http://")
        headers = {"authorization": f"Bearer {_SERVER_KEY}", "content-type": "application/json"}
        with closing(HTTPConnection(address, timeout=_SERVER_TIMEOUT_S)) as connection:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def close(self) -> None:
        """Stop the running request, drop waiting ones and unload the model. Idempotent; for any thread."""
        atexit.unregister(self.close)
        self.closing.set()
        self._worker.shutdown()
        self._server = None


_engines: dict[tuple[Path, int, int, int], Engine] = {}
_engines_lock = threading.Lock()


def acquire_engine(path: Path, threads: int, context: int, copy: int = 0) -> Engine:
    """The shared engine of this process with these arguments, created at the first call."""
    key = (path, threads, context, copy)
    with _engines_lock:
        if key not in _engines:
            _engines[key] = Engine(*key)
        _engines[key].users += 1
        return _engines[key]


def release_engine(engine: Engine) -> None:
    """Release an engine; it is closed after its last user."""
    with _engines_lock:
        engine.users -= 1
        if engine.users:
            return
        del _engines[engine.key]
    engine.close()
