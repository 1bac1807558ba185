"""The model that comes with ODAR: SmolLM2-135M-Instruct on llama.cpp, in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from odar.errors import ProviderError, ProviderTimeout, ProviderUnreachable, WeightsError
from odar.providers.base import Completion, OnText, Reply, Request
from odar.providers.chatml import SPECIAL, chatml
from odar.providers.forced import RefusedError, force
from odar.providers.llamacpp import Chunk, Engine, EngineSettings, StoppedError, engines
from odar.providers.weights import Progress, ensure_weights, weights_path, weights_status
from odar.types import NO_USAGE, Token, Usage

MODEL = "SmolLM2-135M-Instruct"


class LocalProvider:
    """SmolLM2-135M-Instruct, Q4_1, inside this process.

    The same seed gives the same text and log-probabilities on any number of threads, as long as the same part of
    the prompt is in the cache: one that was asked before may give others. Providers with the same settings share
    one loaded model.

    Args:
        name: the provider's name in errors and traces.
        threads: 0 for as many as there are idle cores when the model is loaded.
        context: tokens of prompt and answer together; 23 KB of memory for each token and parallel sample.
        parallel: samples that run in one batch; more of them run in several batches. Each keeps its prompt, and
            eight hold a fast, a verifying and five solving ones: no step evicts another (a third faster).
        copy: a number other than 0 loads the model once more, beside the one the others share.
        progress: called while the weights are fetched, from another thread.
    """

    def __init__(
        self,
        name: str = "local",
        *,
        threads: int = 0,
        context: int = 2048,
        parallel: int = 8,
        copy: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.name = name
        self._threads = threads
        self._context = context
        self._parallel = parallel
        self._copy = copy
        self._progress = progress
        self._engine: Engine | None = None

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """Answer the request; with `on_text` and n = 1, hand over the text as it comes."""
        body = self._body(request)
        loop = asyncio.get_running_loop()

        def hand_over(text: str) -> None:
            if on_text is not None and not given_up.is_set():
                on_text(text)

        def on_piece(text: str) -> None:
            loop.call_soon_threadsafe(hand_over, text)

        given_up = threading.Event()
        wanted = on_piece if on_text is not None and request.n == 1 else None
        engine = self._acquire()
        return await self._within(
            request.timeout_s, given_up, lambda: self._run(engine, request, body, wanted, given_up)
        )

    async def score(self, request: Request, text: str) -> Reply:
        """The text with its log-probabilities as the next turn; one decoding step a token."""
        prompt, given_up = chatml(request.messages, self.name), threading.Event()
        engine = self._acquire()

        def job() -> Reply:
            with self._failures():
                if not engine.loaded:
                    self._fetch(engine)
                forced = force(engine, prompt, text, given_up)
            usage = Usage(forced.prompt, forced.cached, len(forced.tokens), 0, 0, 0)
            return Reply((Completion(text, forced.tokens),), usage, model=f"{MODEL}-Q4_1")

        return await self._within(request.timeout_s, given_up, job)

    async def _within(self, timeout_s: float, given_up: threading.Event, job: Callable[[], Reply]) -> Reply:
        """Run a job on the engine's thread, for so long at most."""
        future = self._acquire().submit(job)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise ProviderTimeout(
                f"the local model did not finish within {timeout_s:g} s", provider=self.name
            ) from None
        except StoppedError:
            raise ProviderError("the local model was closed", provider=self.name) from None
        finally:
            given_up.set()

    async def check(self) -> str:
        """One line on the weights; does not load the model."""
        try:
            status = await asyncio.to_thread(weights_status)
        except WeightsError as error:
            raise ProviderUnreachable(str(error), provider=self.name) from error
        match status.state:
            case "present":
                return f"{MODEL} Q4_1, weights present ({status.size / 1e6:.0f} MB)"
            case "absent":
                return f"{MODEL} Q4_1, weights not fetched yet; `odar pull` does it"
            case "corrupt":
                return f"{MODEL} Q4_1, weights damaged; `odar pull` fetches them again"

    async def close(self) -> None:
        """Free the model, unless another provider uses it. Idempotent."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engines.release, engine)

    def _acquire(self) -> Engine:
        if self._engine is None:
            settings = EngineSettings(weights_path(), self._threads, self._context, self._parallel, self._copy)
            self._engine = engines.acquire(settings)
        return self._engine

    def _run(
        self,
        engine: Engine,
        request: Request,
        body: dict[str, Any],
        on_piece: OnText | None,
        given_up: threading.Event,
    ) -> Reply:
        """On the engine's thread: fetch, load, generate. Raises ProviderError or StoppedError."""
        samples: list[_Sample] = []
        with self._failures():
            if not engine.loaded:
                self._fetch(engine)
            for first in range(0, request.n, self._parallel):
                batch = [_Sample(on_piece) for _ in range(min(self._parallel, request.n - first))]
                # llama.cpp gives sample i of a batch the seed s + i: later batches go on from there.
                seed = body["seed"] + first if request.sampling.seed is not None else body["seed"]
                engine.generate({**body, "n": len(batch), "seed": seed}, self._receiver(batch), given_up)
                samples += batch
        completions = tuple(sample.completion(request.logprobs) for sample in samples)
        return Reply(completions, _usage(samples), model=f"{MODEL}-Q4_1")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Whatever goes wrong on the engine's thread leaves it as a ProviderError or StoppedError."""
        try:
            yield
        except (ProviderError, StoppedError):
            raise
        except RefusedError as error:
            raise self._refused(error.error) from None
        except WeightsError as error:
            raise ProviderUnreachable(str(error), provider=self.name) from error
        except Exception as error:  # the runtime's own messages may quote the prompt: name the kind only
            raise ProviderError(
                f"the local runtime refused the request ({type(error).__name__})",
                provider=self.name,
                status=400,
            ) from error

    def _fetch(self, engine: Engine) -> None:
        """Fetch the weights if need be; goes on when the request that began it has timed out."""

        def progress(done: int, total: int) -> None:
            if engine.closing.is_set():
                raise StoppedError
            if self._progress is not None:
                self._progress(done, total)

        ensure_weights(progress)

    def _receiver(self, batch: list[_Sample]) -> Any:
        def on_chunk(chunk: Chunk) -> None:
            if "error" in chunk:
                raise self._refused(chunk["error"])
            for choice in chunk.get("choices", ()):
                batch[choice["index"]].add(choice, chunk.get("usage"))

        return on_chunk

    def _refused(self, error: Mapping[str, Any]) -> ProviderError:
        kind, status = str(error.get("type", "")), int(error.get("code", 500))
        if kind == "exceed_context_size_error":
            message = (
                f"the prompt has {error.get('n_prompt_tokens')} tokens and the local model's context is "
                f"{error.get('n_ctx')}: shorten it, or choose a model with a longer one"
            )
        else:
            message = f"the local runtime refused the request: {error.get('message', kind)}"
        return ProviderError(message, provider=self.name, status=status, code=kind, retryable=status >= 500)

    def _body(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        return {
            "prompt": chatml(request.messages, self.name),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # a sign of life in long prompts, where a request can be given up
            "cache_prompt": True,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "samplers": ["penalties", "temperature", "top_p"],  # nothing that was not asked for
            "repeat_penalty": 1.0,
            "stop": list(sampling.stop),
            # -1 is llama.cpp's word for random; 31 bits keep seed + sample number clear of it.
            "seed": -1 if sampling.seed is None else sampling.seed % 2**31,
            **({"logprobs": 1} if request.logprobs else {}),
            **{key: value for key, value in request.quirks.extra.items() if key not in request.quirks.drop},
        }


@dataclass(slots=True)
class _Sample:
    """One choice as it grows."""

    on_piece: OnText | None
    texts: list[str] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    finish: str = "stop"
    usage: Mapping[str, Any] = field(default_factory=dict)

    def add(self, choice: Mapping[str, Any], usage: Mapping[str, Any] | None) -> None:
        """Take in a chunk of this choice; the last one carries the reason and the token count."""
        if choice["text"]:
            self.texts.append(choice["text"])
            if self.on_piece is not None:
                self.on_piece(choice["text"])
        for token in (choice.get("logprobs") or {}).get("content") or ():
            text = bytes(token["bytes"]).decode(errors="replace")
            self.tokens.append(Token(text, token["logprob"], control=token["id"] < len(SPECIAL)))
        self.finish = choice.get("finish_reason") or self.finish
        self.usage = usage or self.usage

    def completion(self, logprobs: bool) -> Completion:
        """The finished sample."""
        if not logprobs:
            return Completion("".join(self.texts), (), self.finish)
        # Where a character takes several tokens, llama.cpp reports only the last of them, with the text of
        # all. The others' log-probabilities are unknown: say so, rather than let the answer look surer.
        unreported = int(self.usage.get("completion_tokens", len(self.tokens))) - len(self.tokens)
        at = len(self.tokens) - (1 if self.tokens and self.tokens[-1].control else 0)
        tokens = (*self.tokens[:at], *[Token("", None)] * unreported, *self.tokens[at:])
        return Completion("".join(self.texts), tokens, self.finish)


def _usage(samples: list[_Sample]) -> Usage:
    """The prompt counts once, as it is evaluated once; each sample reports its own output."""
    if not samples:
        return NO_USAGE
    first = samples[0].usage
    return Usage(
        input=first.get("prompt_tokens"),
        cached=(first.get("prompt_tokens_details") or {}).get("cached_tokens"),
        output=sum(int(sample.usage.get("completion_tokens", 0)) for sample in samples),
        reasoning=0,
        written=0,
        written_1h=0,
    )
