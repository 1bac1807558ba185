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
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

from odar.errors import ProviderError
from odar.types import Token

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


def runtime_error(error: Mapping[str, Any]) -> ProviderError:
    """Return the error behind a rejection of the runtime; `LocalProvider` adds its name."""
    kind, status = str(error.get("type", "")), int(error.get("code", 500))
    message = f"the local runtime refused the request: {error.get('message', kind)}"
    if kind == "exceed_context_size_error":
        message = (
            f"the prompt has {error.get('n_prompt_tokens')} tokens and the local model's context is "
            f"{error.get('n_ctx')}: shorten it, or choose a model with a longer one"
        )
    return ProviderError(message, status=status, code=kind, retryable=status >= 500)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings that identify an engine; equal ones share it."""

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
        return self.path.stat().st_size if self.path.exists() else 0


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


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(idle: float, size: int = 0) -> int:
    """Threads for this many idle cores and weights of `size` bytes; a core that is three quarters idle counts.

    More than four threads do not help 100 MB of weights, more than eight do not help a gigabyte.

    >>> [threads_for(idle) for idle in (0.0, 0.9, 1.5, 1.8, 30.0)], threads_for(30.0, size=1_100_000_000)
    ([1, 1, 1, 2, 4], 8)
    """
    most = 8 if size > 300_000_000 else 4
    return max(1, min(math.floor(idle + 0.25), most))


def idle_cores() -> float:
    """Number of idle cores that this process may use; all of them where the system does not tell."""
    try:
        before = _cpu_ticks()
        sleep(_IDLE_SAMPLE_S)
        ticks = [after - first for after, first in zip(_cpu_ticks(), before, strict=True)]
    except OSError:
        return usable_cores()
    # Fields 3 and 4 are idle and waiting for a disk; both leave the core to us.
    share = sum(ticks[3:5]) / max(1, sum(ticks))
    return min(share * (os.cpu_count() or 1), usable_cores())


def _cpu_ticks() -> list[int]:
    """Return the first line of /proc/stat without guest time, which is part of user time."""
    return [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]


_cores = threading.Semaphore(usable_cores())
_turn = threading.Lock()


@contextmanager
def reserved_cores(threads: int, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold cores for this many threads, so that all models in this process never use more threads than cores.

    Raises:
        StoppedError: `cancelled` became true while waiting.
    """
    wanted, held = min(threads, usable_cores()), 0
    try:
        with _turn:  # one waits at a time, so that two never hold a part each
            while held < wanted:
                if _cores.acquire(timeout=_WAIT_S):
                    held += 1
                elif cancelled():
                    raise StoppedError
        yield
    finally:
        for _ in range(held):
            _cores.release()


class Engine:
    """A model and the one thread that talks to it, first come first served.

    Requests are not batched with each other: on a CPU that gains little, and it would make what one
    request samples depend on when another arrived.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.users = 0
        self.closing = threading.Event()
        self._server: Any = None
        self._threads = settings.threads
        self._best_rate = min(30.0, _FLOOR_BYTES_PER_S / max(settings.size, 1))
        self._cached_ids = lru_cache(maxsize=256)(self._ids)  # prompts share their instructions and examples
        self._template = lru_cache(maxsize=64)(self._render_roles)
        self._worker = ThreadPoolExecutor(1, "odar-llamacpp")
        atexit.register(self.close)

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
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
            future: Future[_T] = Future()
            future.set_exception(StoppedError())
            return future

    def prepare(self) -> None:
        """Load the model unless it is there. Call on the engine's thread."""
        if self._server is None:
            self._threads = self._threads or threads_for(idle_cores(), self.settings.size)
            self._server = load_server(self.settings, self._threads)

    def generate(self, body: Mapping[str, Any], on_chunk: OnChunk, stop: threading.Event) -> None:
        """Run one completion, handing over its chunks. Call on the engine's thread.

        Raises:
            StoppedError: `stop` was set or the engine closed; the model is free again.
            ProviderError: the runtime refused.
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
            refusal = self._server.handle_completions(dict(body), on_data)
        self._watch_rate(tokens, monotonic() - first)
        if failures:
            raise failures[0]
        if cancelled():
            raise StoppedError
        if refusal:
            raise runtime_error(refusal["error"])

    def _watch_rate(self, tokens: int, seconds: float) -> None:
        """Reload the model with one thread if several have become slower than one would be."""
        if self._threads > 1 and seconds >= (_SHORTEST_MEASURE_S if tokens else _SILENCE_S):
            rate = tokens / seconds
            if rate < self._best_rate / 3:
                self._threads, self._server = 1, None
            self._best_rate = max(self._best_rate, rate)

    def chat_prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Token ids of a conversation of (role, text) by the model's chat template. Call on the engine's thread.

        The texts are tokenized as plain text: no control token in them can end a turn. A last turn of the assistant
        stays open, so that the model continues it.

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
            raise self._template_error(str(error.get("message", "rejected")).splitlines()[0][:200])
        pieces, rest = [], str(body["prompt"])
        for number, mark in enumerate(marks):
            before, found, rest = rest.partition(mark)
            if not found:
                raise self._template_error(f"it leaves out the {roles[number]} message at place {number + 1}")
            pieces += [before, str(number)]
        return (*pieces, rest)

    def _template_error(self, why: str) -> ProviderError:
        name = self.settings.path.name
        return ProviderError(f"the chat template of {name} rejects the conversation: {why}", status=400)

    def tokenize(self, text: str) -> list[Mapping[str, Any]]:
        """Return the tokens of a plain text, each with its id and its piece. Call on the engine's thread."""
        return self._tokens(text, with_pieces=True, parse_special=False, add_special=False)

    def _ids(self, text: str, special: bool, first: bool) -> tuple[int, ...]:
        """Token ids of a text; `special` reads control tokens in it, `first` adds what begins every prompt."""
        return tuple(self._tokens(text, with_pieces=False, parse_special=special, add_special=first))

    def _tokens(self, text: str, **options: bool) -> list[Any]:
        tokens: list[Any] = self._call("/tokenize", {"content": text, **options})[1]["tokens"]
        return tokens

    def _call(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Status and body of a request to the runtime's own port, the only way to its tokenizer and template."""
        from http.client import HTTPConnection

        self.prepare()
        address = str(self._server.listening_address).removeprefix("http://")
        headers = {"authorization": f"Bearer {_KEY}", "content-type": "application/json"}
        with closing(HTTPConnection(address, timeout=_LOCAL_CALL_S)) as connection:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def close(self) -> None:
        """Stop the running request, drop the waiting ones, free the model. Idempotent, from any thread."""
        atexit.unregister(self.close)
        self.closing.set()
        self._worker.shutdown()
        self._server = None


def teacher_force(
    engine: Engine, prompt: Sequence[int], text: str, stop: threading.Event
) -> tuple[tuple[Token, ...], int]:
    """Make the model write `text` after `prompt`: its tokens with log-probabilities, and how many were cached.

    Call on the engine's thread.

    llama.cpp's server returns log-probabilities of generated tokens only (ggml-org/llama.cpp, issue 27174). A
    grammar that allows one token at each place makes it generate the text. The grammar acts on a copy of the
    distribution, so the values are the same as when the model samples this text after a cached prompt.

    Raises:
        StoppedError: `stop` was set or the engine closed.
        ProviderError: the runtime refused, for instance because the text does not fit the context.
    """
    pieces = engine.tokenize(text)
    total = len(prompt) + len(pieces)
    if total > engine.settings.context:  # the runtime would notice only after writing that much
        counts = {"n_prompt_tokens": total, "n_ctx": engine.settings.context}
        raise runtime_error({"type": "exceed_context_size_error", "code": 400, **counts})
    tokens: list[Token] = []
    written = list(prompt)
    cached: int | None = None
    for whole, run in groupby(pieces, lambda piece: isinstance(piece["piece"], str)):
        entries = list(run)
        ids = [int(piece["id"]) for piece in entries]
        if whole:
            scores, found = _write(engine, written, ids, stop)
            tokens += [Token(piece["piece"], score) for piece, score in zip(entries, scores, strict=True)]
            cached = found if cached is None else cached
        else:  # parts of characters, for which llama.cpp reports no log-probability
            tokens += [Token("", None)] * len(ids)
        written += ids
    return tuple(tokens), cached or 0


def _write(engine: Engine, prompt: list[int], ids: list[int], stop: threading.Event) -> tuple[list[float], int]:
    """Return the log-probabilities of the tokens after the prompt, and the number of cached tokens."""
    found: list[tuple[int, float]] = []
    cached = 0

    def on_chunk(chunk: Chunk) -> None:
        nonlocal cached
        usage = chunk.get("usage") or {}
        cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens", cached))
        for choice in chunk.get("choices", ()):
            entries = (choice.get("logprobs") or {}).get("content") or ()
            found.extend((entry["id"], entry["logprob"]) for entry in entries)

    body = {
        "prompt": prompt,
        "grammar": "root ::= " + " ".join(f"<[{number}]>" for number in ids),
        "max_tokens": len(ids),
        "temperature": 0.0,
        "samplers": ["temperature"],
        "logprobs": 1,
        **STREAMED,
    }
    engine.generate(body, on_chunk, stop)
    if [number for number, _ in found] != ids:
        raise runtime_error({"message": "other tokens were written than the text has", "code": 500})
    return [value for _, value in found], cached


STREAMED = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_progress": True,  # a chunk after each part of a long prompt, where a request can be cancelled
    "cache_prompt": True,
}
"""How every request is sent."""
_engines: dict[EngineSettings, Engine] = {}
_engines_lock = threading.Lock()


def acquire_engine(settings: EngineSettings) -> Engine:
    """Return the shared engine of this process with these settings; it is made at the first call."""
    with _engines_lock:
        if settings not in _engines:
            _engines[settings] = Engine(settings)
        _engines[settings].users += 1
        return _engines[settings]


def release_engine(engine: Engine) -> None:
    """Give an engine back; the last user closes it."""
    with _engines_lock:
        engine.users -= 1
        if engine.users:
            return
        del _engines[engine.settings]
    engine.close()
