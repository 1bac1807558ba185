"""Provider of models that run in this process on llama.cpp: those of `weights.toml`, and GGUF files of the user."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from odar.background import run_in_thread
from odar.errors import OdarError, ProviderError, ProviderTimeout, ProviderUnreachable, WeightsError
from odar.providers.base import Completion, Delta, Message, OnDelta, Provider, Reply, Request
from odar.providers.llamacpp import PARALLEL, STREAMED, Chunk, Engine, StoppedError, acquire_engine, release_engine
from odar.providers.openai import Choice
from odar.providers.weights import GGUF, OnMessage, OnProgress, ensure_weights, find_weights, gguf_path
from odar.types import Token, Usage

_LOG = logging.getLogger(__name__)
DEFAULT_CONTEXT = 4096
"""Tokens of prompt and answer together, if the catalogue has no value."""
RETRY_DOWNLOAD_S = 60.0
"""Time after a failed download during which calls fail at once."""
_ROLES = frozenset({"system", "user", "assistant"})
_SURROGATE = re.compile("[\ud800-\udfff]")


class LocalProvider(Provider):
    """Models in this process, each loaded at its first call.

    The same seed gives the same text and log-probabilities on any number of threads, as long as the same part of
    the prompt is in the cache: a repeated prompt may give slightly different ones. Providers with the same settings
    share the loaded models. A model that is not in the cache yet is downloaded by `prepare`, or by its first call.

    Args:
        threads: 0 for the number of idle cores when a model is loaded.
        contexts: tokens of prompt and answer together, by model; `DEFAULT_CONTEXT` for others.
        copies: how often each model is loaded, for long runs: two copies with one thread each do twice the work of
            one copy, while one copy with two threads does half as much again.
        on_progress: called from another thread while weights are downloaded.
        on_message: called from another thread with a line for the user, such as where weights come from; by default
            it is logged as a warning, which Python prints.
    """

    def __init__(
        self,
        name: str = "local",
        *,
        threads: int = 0,
        contexts: Mapping[str, int] | None = None,
        copies: int = 1,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> None:
        self.name = name
        self._threads = threads
        self._contexts = dict(contexts or {})
        self._copies = copies
        self._on_progress = on_progress
        self._on_message = on_message or _LOG.warning
        self._engines: dict[str, list[Engine]] = {}
        """The copies of each model."""
        self._failed_downloads: dict[str, tuple[float, str]] = {}

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Answer the request on the engine's thread, after downloading and loading the model."""
        turns = _turns(request.messages, self.name)
        engine = self._engine(request.model)
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()

        def pass_on(text: str) -> None:
            if on_delta is not None and not cancelled.is_set():
                on_delta(Delta(text))

        def on_text(text: str) -> None:  # on the engine's thread
            if on_delta is not None and request.n == 1:
                loop.call_soon_threadsafe(pass_on, text)

        def job() -> Reply:
            with self._provider_errors(request.model):
                self._download(request.model, engine)
                return _generate(engine, request, engine.chat_prompt(turns), on_text, cancelled)

        # wait for the job in the engine's queue
        engine.requests += 1
        try:
            async with asyncio.timeout(request.timeout_s):
                return await asyncio.wrap_future(engine.submit(job))
        except TimeoutError:
            raise ProviderTimeout(
                f"the local model {request.model} did not finish within {request.timeout_s:.3g} s",
                provider=self.name,
            ) from None
        except StoppedError:
            raise ProviderError("the local model was closed", provider=self.name) from None
        finally:
            cancelled.set()
            engine.requests -= 1

    async def prepare(self, model: str) -> None:
        """Download missing weights and load the model; the first call reports a failure."""
        with suppress(Exception):
            engine = self._engine(model)
            if not engine.loaded:
                await asyncio.to_thread(self._download, model, engine)
                await asyncio.wrap_future(engine.submit(engine.prepare))

    async def check(self, model: str = "") -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return f"llama.cpp in this process (xllamacpp {version('xllamacpp')})"
        except PackageNotFoundError:
            raise ProviderUnreachable(
                "xllamacpp is not installed; pip install xllamacpp", provider=self.name
            ) from None

    async def close(self) -> None:
        opened, self._engines = self._engines, {}
        for engine in chain.from_iterable(opened.values()):
            await run_in_thread(partial(release_engine, engine))

    def _engine(self, model: str) -> Engine:
        """The copy of a model with the fewest requests."""
        if model not in self._engines:
            with self._provider_errors(model):
                path = gguf_path(model) if model.startswith(GGUF) else find_weights(model).path
            context = self._contexts.get(model, DEFAULT_CONTEXT)
            self._engines[model] = [
                acquire_engine(path, self._threads, context, copy) for copy in range(self._copies)
            ]
        return min(self._engines[model], key=lambda engine: engine.requests)

    def _download(self, model: str, engine: Engine) -> None:
        """Download missing weights; continues after the request that started it has timed out."""
        if engine.loaded or model.startswith(GGUF):
            return

        def on_progress(stage: str, done: int, total: int) -> None:
            if engine.closing.is_set():
                raise StoppedError
            if self._on_progress is not None:
                self._on_progress(stage, done, total)

        failed_at, reason = self._failed_downloads.get(model, (0.0, ""))
        if reason and time.monotonic() - failed_at < RETRY_DOWNLOAD_S:
            raise WeightsError(reason)
        try:
            ensure_weights(find_weights(model), on_progress, self._on_message)
        except WeightsError as error:
            self._failed_downloads[model] = (time.monotonic(), str(error))
            raise

    @contextmanager
    def _provider_errors(self, model: str) -> Iterator[None]:
        """Convert exceptions other than StoppedError to ProviderError."""
        try:
            yield
        except StoppedError:
            raise
        except ProviderError as error:
            error.provider = self.name
            raise
        except OdarError as error:
            raise ProviderUnreachable(str(error), provider=self.name) from error
        except Exception as error:  # the runtime's messages may quote the prompt, so only the type is reported
            raise ProviderError(
                f"the local runtime rejected the request to {model} ({type(error).__name__})",
                provider=self.name,
                status=400,
            ) from error


def _turns(messages: tuple[Message, ...], provider: str) -> list[tuple[str, str]]:
    """The roles and texts of a conversation; ProviderError if the local models do not support it."""
    for message in messages:
        problem = ""
        if message.images:
            problem = "local models cannot see images; choose a model that can"
        elif message.role not in _ROLES:
            problem = f"unknown role {message.role!r} (known: {', '.join(sorted(_ROLES))})"
        elif _SURROGATE.search(message.text):
            problem = f"a {message.role} message is not valid Unicode (unpaired surrogate)"
        if problem:
            raise ProviderError(problem, provider=provider, status=400)
    return [(message.role, message.text) for message in messages]


def _generate(
    engine: Engine, request: Request, prompt: list[int], on_text: Callable[[str], None], cancelled: threading.Event
) -> Reply:
    """The reply with all samples of a request, as many at once as the engine has slots."""
    body = _body(request, prompt)
    choices = [Choice() for _ in range(request.n)]
    usages: list[Mapping[str, Any]] = [{} for _ in choices]
    for first in range(0, request.n, PARALLEL):

        def on_chunk(chunk: Chunk, first: int = first) -> None:
            for choice in chunk.get("choices", ()):
                number = first + choice["index"]
                usages[number] = chunk.get("usage") or usages[number]
                if text := choices[number].add(choice, {"content": choice["text"]}).text:
                    on_text(text)

        # llama.cpp gives sample i of a batch the seed s + i; later batches continue the sequence.
        seed = body["seed"] + first if request.sampling.seed is not None else body["seed"]
        samples = min(PARALLEL, request.n - first)
        engine.generate({**body, "n": samples, "seed": seed}, on_chunk, cancelled)
    total = Usage(
        input=usages[0].get("prompt_tokens"),  # the prompt is evaluated and counted once
        cached=(usages[0].get("prompt_tokens_details") or {}).get("cached_tokens"),
        output=sum(int(usage.get("completion_tokens", 0)) for usage in usages),
        reasoning=None if any(choice.reasoned for choice in choices) else 0,
        written=0,
        written_1h=0,
    )
    completions = tuple(
        _completion(choice, usage, logprobs=request.logprobs) for choice, usage in zip(choices, usages, strict=True)
    )
    return Reply(completions, total, model=engine.path.stem)


def _completion(choice: Choice, usage: Mapping[str, Any], *, logprobs: bool) -> Completion:
    """The sample, with all its tokens.

    If a character has several tokens, llama.cpp reports only the last of them, with the text of all. The others get
    unknown log-probabilities: left out, the answer would look more certain.
    """
    completion = choice.completion()
    tokens = completion.tokens
    if not logprobs or choice.reasoned:
        return completion
    unreported = int(usage.get("completion_tokens", len(tokens))) - len(tokens)
    end = len(tokens) - (1 if tokens and tokens[-1].control else 0)
    return replace(completion, tokens=(*tokens[:end], *[Token("", None)] * unreported, *tokens[end:]))


def _body(request: Request, prompt: list[int]) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "prompt": prompt,
        **STREAMED,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "samplers": ["penalties", "temperature", "top_p"],  # none of llama.cpp's further defaults
        "repeat_penalty": 1.0,
        "stop": list(sampling.stop),
        # -1 is a random seed; with 31 bits, seed + sample number cannot become -1.
        "seed": -1 if sampling.seed is None else sampling.seed % 2**31,
        **({"logprobs": 1} if request.logprobs else {}),
        **{key: value for key, value in request.extra.items() if key not in request.drop},
    }
