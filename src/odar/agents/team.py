"""The agents of one query, and their calls: start at `Team.ask`.

A stage returns its candidates; an agent that fails returns none. Errors are collected in `failures`, so that a
policy can go on with the agents that answered.

    ask → _run                 each agent of the stage: a new call, or a reply that exists already
        → _call_models         its model, then its fallbacks
        → _samples             as many samples as fit the limits, in one request or several
        → _call → complete     one request, billed by the ledger
        → candidate            text → final answer, judgment, faults
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from odar.agents.ledger import Ledger, draft_tokens, worst_cost
from odar.agents.prompts import Prompts, PromptSet
from odar.background import run_by_size
from odar.catalogue import REASONING_ROOM, REASONING_TOKENS, ModelCard
from odar.conversation import NO_PARAMETERS, ChatParameters
from odar.errors import (
    AllAgentsFailed,
    BudgetExceeded,
    InputError,
    OdarError,
    ProviderError,
    ProviderProtocolError,
    ProviderUnreachable,
    SettingsError,
    UnknownName,
    drop_traceback,
    one_line,
    summary_of,
)
from odar.forwarding import select_fields
from odar.observer import observed
from odar.policy.answers import answer_in_reply, extract_judgment, find_answer, is_bare_answer
from odar.policy.belief import RatedAgent
from odar.policy.equivalence import canonical_json
from odar.providers.base import Completion, Delta, Message, OnDelta, Reply, Request, Sampling
from odar.providers.pool import ProviderPool
from odar.response_format import format_fault
from odar.settings import AgentSettings, Settings
from odar.types import FAST, SLOW, Ask, Assignment, Call, Candidate, Decision, Query, Stage

_CONTINUE_PROMPT = (
    "Your answer was cut off. Continue exactly where it ends, without repeating anything, and end in the form that "
    "was asked for."
)


MAX_TEXT = 2**22
"""Characters of the longest answer that is read, a million tokens; no model writes more unless it is broken."""


def describe_failure(agent: str, error: OdarError, *, quoting: bool = True) -> str:
    """The error of an agent that gave no answer for a trace.

    Without `quoting`, what a provider said is left out, because it may quote the request.
    """
    return f"{agent} agent: {_failure_reason(error, quoting=quoting)}"


def _describe_failures(failures: Iterable[tuple[str, OdarError]]) -> list[str]:
    """The errors of the agents that gave no answer; an error that several of them had is written once."""
    agents: dict[str, list[str]] = {}
    for agent, error in failures:
        agents.setdefault(_failure_reason(error), []).append(agent)
    return [f"{' and '.join(dict.fromkeys(names))} agent: {why}" for why, names in agents.items()]


def _failure_reason(error: OdarError, *, quoting: bool = True) -> str:
    # Settings hold paths and names of the operator; traces are shown to clients too.
    if isinstance(error, SettingsError | UnknownName):
        return "its provider cannot be used; `odar doctor` says why"
    return summary_of(error) if isinstance(error, ProviderError) and not quoting else one_line(error)


@dataclass(slots=True)
class Team:
    """The agents of one query."""

    settings: Settings
    cards: Mapping[str, ModelCard]
    """The model of each agent."""
    prompt_set: PromptSet
    providers: ProviderPool
    query: Query
    ledger: Ledger
    seed: int | None = None

    # how the request is sent
    plain: bool = False
    """Whether only the client's own parameters are sent, as for a model that the client named."""
    open_ended: bool = False
    """Whether the request is open-ended: it is sent unchanged, and there is more room for its answer."""
    short: bool = False
    """Whether the caller needs a final answer in short also where nothing is compared."""
    final: bool = False
    """Whether the next stage gives the answer alone. Nothing is compared then, so the request is sent unchanged,
    unless `short`. Set before each stage, from the policy's decision."""

    # what is known already
    assignment: Assignment = field(default_factory=Assignment)
    """Its expert and models, and why; not needed without a plan."""
    rated: Mapping[str, RatedAgent] = field(default_factory=dict)
    """Skill and family of each agent; not needed if the team is plain."""
    known_reply: tuple[Completion, Call] | None = None
    """A reply of the slow agent that exists already, and its call: used in place of its first answer."""

    # what happened so far, for the trace
    failures: list[tuple[str, OdarError]] = field(default_factory=list)
    """Agents that gave no answer, and their errors without tracebacks."""
    shortcuts: list[str] = field(default_factory=list)
    """Degradations that are not failures."""
    notes: list[str] = field(default_factory=list)
    """Parts of the request that a model did not get."""

    _asked: dict[str, int] = field(default_factory=dict)
    """Number of samples that each agent was asked for, so that with a seed none is drawn twice."""
    _early: dict[Ask, asyncio.Task[list[Candidate]]] = field(default_factory=dict)
    """Calls that were started before the plan."""
    _templates: dict[tuple[str, str], Request] = field(default_factory=dict)
    """`request_template` by agent and model."""
    _answers: list[str] = field(default_factory=list)
    """Answers so far, if a reply exists already: it may give one of them in other words."""
    _descriptions: tuple[Message, ...] | None = None
    """The client's tools and format as they are billed; None until they are needed."""

    @property
    def prompts(self) -> Prompts:
        """The prompts of the next stage, by step."""
        return self.prompt_set.choose(open_ended=self.open_ended or (self.final and not self.short))

    async def ask(
        self, stage: Stage, proposal: Candidate | None = None, on_delta: OnDelta | None = None
    ) -> list[Candidate]:
        """Ask the agents of one stage concurrently, and return their candidates.

        Args:
            stage: the agents and the number of samples.
            proposal: the answer that a verifier is shown.
            on_delta: receives the text of the stage's first agent while it is generated.
        """
        await asyncio.gather(*(self.prepare(agent) for agent in sorted(stage.agents)))
        work = [self._run(ask, proposal, on_delta if i == 0 else None) for i, ask in enumerate(stage.asks)]
        parts = [await work[0]] if len(work) == 1 else await gather_or_cancel(work)
        candidates = [candidate for part in parts for candidate in part]
        if self.known_reply is not None:
            self._answers += [candidate.answer for candidate in candidates]
        return candidates

    def ask_early(self, opening: Decision) -> None:
        """Start a single call before the plan is made, unless an agent cannot be used; `ask` waits for it."""
        assert opening.stage is not None
        (ask,) = opening.stage.asks
        self.final = opening.final
        with suppress(OdarError):
            self.check(*self.cards)
            self._early[ask] = asyncio.create_task(self._call_models(ask, None, None))

    def skip_samples(self, agent: str, samples: int) -> None:
        """Count samples as asked for, so that with a seed the next ones differ from them."""
        self._asked[agent] = self._asked.get(agent, 0) + samples

    async def close(self) -> None:
        """Cancel early calls that no stage needed."""
        tasks = list(self._early.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def error(self) -> OdarError:
        """The error of a question that no agent answered.

        Failures are cleared: the traceback of the error holds them.
        """
        causes = [error for _, error in self.failures]
        if self.plain or not any(isinstance(cause, ProviderError) for cause in causes):
            self.failures.clear()
            return causes[0]
        return AllAgentsFailed(_describe_failures(self.failures), causes)

    def fail(self, agent: str, error: OdarError) -> None:
        drop_traceback(error)
        self.failures.append((agent, error))

    def check(self, *agents: str) -> None:
        """Raise an error if an agent cannot answer this query, before another one is paid."""
        for agent in agents:
            self.check_images(agent)
            _ = self.providers[self.cards[agent].provider]

    def check_images(self, *agents: str) -> None:
        """Raise InputError if the query has images that an agent's model cannot see."""
        for agent in agents:
            card = self.cards[agent]
            if self.query.images and not card.images:
                raise InputError(
                    f"{card.name} cannot see images; choose a {agent}.model that can (odar models | grep images)"
                )

    async def prepare(self, agent: str) -> None:
        """Download and load the agent's model before its first use, without counting this time."""
        started = self.ledger.clock()
        card = self.cards[agent]
        with suppress(OdarError):  # a provider that cannot be opened is reported by the call
            await self.providers[card.provider].prepare(card.id)
        self.ledger.exclude_time(self.ledger.clock() - started)

    def request_template(self, agent: str, card: ModelCard | None = None) -> Request:
        """A request of this agent without its conversation, for its own model or another."""
        card = card or self.cards[agent]
        parameters = self.query.parameters
        if self.plain:
            priced = self.ledger.max_cost_usd is not None
            return plain_request_template(card, parameters, self.ledger.time_left(), priced=priced)
        if (agent, card.name) not in self._templates:
            settings = self.settings.agent(agent, open_ended=self.open_ended)
            self._templates[agent, card.name] = _agent_request_template(settings, card, parameters, self.seed)
        return self._templates[agent, card.name]

    def models(self, agent: str) -> Iterator[ModelCard]:
        """Yield the agent's model, then its fallbacks."""
        yield self.cards[agent]
        for name in () if self.plain else self.settings.models_of(agent):
            if name == self.cards[agent].name:
                continue
            card = self.settings.card(name)
            if self.query.images and not card.images:
                continue
            with suppress(OdarError):  # skip a provider without its key
                _ = self.providers[card.provider]
                yield card

    async def _run(self, ask: Ask, proposal: Candidate | None, on_delta: OnDelta | None) -> list[Candidate]:
        """The candidates of one agent; an early call is used if there is one."""
        if self.known_reply is not None and ask.agent == SLOW and not ask.verify:
            return await self._use_known_reply(ask, on_delta)
        early = self._early.pop(ask, None)
        if early is None:
            return await self._call_models(ask, proposal, on_delta)
        try:
            return await early
        finally:
            early.cancel()

    async def _use_known_reply(self, ask: Ask, on_delta: OnDelta | None) -> list[Candidate]:
        """A reply that exists already, and further samples if there are more to ask for."""
        assert self.known_reply is not None
        completion, call = self.known_reply
        self.known_reply = None
        self.ledger.calls.append(replace(call, step=ask.step, agent=ask.agent))
        self.skip_samples(ask.agent, 1)
        first = self.candidate(ask, self.cards[ask.agent], completion)
        if not first.tool_calls and (known := answer_in_reply(first.answer, self._answers)) is not None:
            first = replace(first, answer=known, stated=True)
        if ask.samples == 1:
            return [first]
        return [first, *await self._call_models(ask._replace(samples=ask.samples - 1), None, on_delta)]

    @observed("agent")
    async def _call_models(self, ask: Ask, proposal: Candidate | None, on_delta: OnDelta | None) -> list[Candidate]:
        """The answers of the first of the agent's models that gives any."""
        try:
            self.check(ask.agent)
        except OdarError as error:
            self.fail(ask.agent, error)
            return []
        first = self._asked.get(ask.agent, 0)
        self._asked[ask.agent] = first + ask.samples

        # once the client has some text, no other model can answer
        streamed = False

        def forward(delta: Delta) -> None:
            nonlocal streamed
            streamed = streamed or bool(delta.text or delta.tool_calls)
            assert on_delta is not None
            on_delta(delta)

        # one model after the other
        models = list(self.models(ask.agent))
        candidates: list[Candidate] = []
        for card in models:
            before = len(self.failures)
            request = replace(
                self.request(ask, card, proposal, first),
                retry_rate_limit=card is models[-1] and not self.plain,  # otherwise the next model is asked
            )
            handler = None if on_delta is None else forward
            for completion in await self._samples(ask, card, request, handler):
                make = partial(self.candidate, ask, card, completion, proposal)
                candidates.append(await run_by_size(len(completion.text), make))
            errors = [error for _, error in self.failures[before:]]
            if candidates or streamed or not errors or not all(map(_another_may_answer, errors)):
                break
        return candidates

    def request(self, ask: Ask, card: ModelCard, proposal: Candidate | None = None, first: int = 0) -> Request:
        """The request of an agent to one of its models; `first` is the number of samples before it.

        A verifier is shown the proposal.
        """
        shown = proposal if ask.verify else None
        proposed = (shown.answer, _draft(shown)) if shown else ("", "")
        template = self.request_template(ask.agent, card)
        return replace(
            template,
            messages=self.prompts[ask.step].messages(self.query, *proposed),
            sampling=_seeded(template.sampling, first),
            n=ask.samples,
            unlisted_model=card.name not in self.settings.models,
            parameters=self._parameters(card, template),
        )

    def affordable(self, card: ModelCard, request: Request) -> int:
        """How many of the request's samples fit the limits; raises BudgetExceeded if not one does."""
        billed = self.billed_messages(request.messages)
        return self.ledger.affordable(card, billed, request.sampling.max_tokens, request.n)

    def worst_usd(self) -> dict[str, float]:
        """The most that one call to each agent can cost; infinite if it is unknown."""
        costs = {}
        for agent, card in self.cards.items():
            try:
                costs[agent] = self.worst_cost(Ask(agent), card)
            except BudgetExceeded:
                costs[agent] = math.inf
        return costs

    def worst_cost(self, ask: Ask, card: ModelCard) -> float:
        """The most that one sample of a model can cost; raises BudgetExceeded if it is unknown."""
        max_tokens = self.request_template(ask.agent, card).sampling.max_tokens
        return worst_cost(card, self.billed_prompt(ask), max_tokens, self.draft_tokens(ask, card))

    def draft_tokens(self, ask: Ask, card: ModelCard) -> int:
        """The most tokens that a verifier reads of the draft of the fast agent; 0 for other calls."""
        return draft_tokens(card, self.request_template(FAST).sampling.max_tokens or 0) if ask.verify else 0

    def billed_prompt(self, ask: Ask) -> tuple[Message, ...]:
        """All messages billed as input of a call, without the draft that a verifier is shown."""
        return self.billed_messages(self.prompts[ask.step].messages(self.query))

    async def complete(self, ask: Ask, card: ModelCard, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Send a request to a model, and bill it."""
        _ = self.providers[card.provider]  # one that cannot be opened is not billed
        billed = self.billed_messages(request.messages)
        send = partial(self.providers.complete, card.provider, on_delta=on_delta)
        return await self.ledger.bill(ask, card, request, billed, send)

    def billed_messages(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """All messages billed as input; descriptions of tools are part of the prompt."""
        parameters = self.query.parameters
        if self._descriptions is None:
            parts = [
                f"{tool.name} {tool.description} {tool.parameters} {tool.wire or ''}" for tool in parameters.tools
            ]
            parts += [str(parameters.format.schema)] if parameters.format and parameters.format.schema else []
            self._descriptions = (Message("system", "\n".join(parts)),) if parts else ()
        return (*messages, *self._descriptions)

    def _parameters(self, card: ModelCard, template: Request) -> ChatParameters:
        """The client's parameters that this model's provider accepts; the others are noted."""
        parameters = self.query.parameters
        if parameters is NO_PARAMETERS:
            return parameters
        provider = self.settings.providers[card.provider]
        chosen, note = select_fields(
            parameters,
            protocol="anthropic" if provider.kind == "anthropic" else "openai",
            forward=provider.forward,
            fixed=(*template.extra, *template.drop, *(["reasoning_effort"] if template.effort else [])),
            cost_limited=self.ledger.max_cost_usd is not None,
            efforts=card.efforts,
        )
        if note:
            self.notes.append(f"{card.provider}: {note}")
        if parameters.tools and provider.kind == "local":
            self.shortcuts.append(f"{card.provider}: models in this process get no tools")
        requested = {"temperature": parameters.temperature, "top_p": parameters.top_p, "seed": parameters.seed}
        if refused := [name for name, value in requested.items() if value is not None and name in template.drop]:
            self.notes.append(f"{card.name} takes no {', '.join(refused)}")
        return chosen

    async def _samples(
        self, ask: Ask, card: ModelCard, request: Request, on_delta: OnDelta | None
    ) -> list[Completion]:
        """Samples of a model, as many of `request.n` as fit the limits.

        One request gets them all where the server can; the rest are separate concurrent requests.
        """
        # as many as fit the limits
        try:
            count = self.affordable(card, request)
        except BudgetExceeded as error:
            self.fail(ask.agent, error)
            return []
        if count < request.n:
            self.fail(ask.agent, BudgetExceeded(f"only {count} of {request.n} samples fit the limits"))
            request = replace(request, n=count)
        # All in one request, if the server can. A client that names a model outside the catalogue asks it as it
        # would without ODAR.
        in_one_request = request.n == 1 or card.n or (self.plain and request.unlisted_model)
        found = await self._call(ask, card, request, on_delta) if in_one_request else []
        if len(found) >= request.n or (in_one_request and not found):  # complete, or it gave nothing
            return found
        # the rest one by one, at the same time
        rest = [
            self._call(ask, card, replace(request, n=1, sampling=_seeded(request.sampling, index)))
            for index in range(len(found), request.n)
        ]
        return found + [completion for alone in await gather_or_cancel(rest) for completion in alone]

    async def _call(
        self, ask: Ask, card: ModelCard, request: Request, on_delta: OnDelta | None = None
    ) -> list[Completion]:
        """The usable completions of one request on the ledger. A failure is recorded, not raised."""
        try:
            reply = await self.complete(ask, card, request, on_delta)
        except ProviderError as error:
            self.fail(ask.agent, error)
            return []
        completions = reply.completions[: request.n]
        # A model that spent all its tokens on thinking has neither text nor a tool call.
        usable = list(filter(is_usable, completions))
        if len(usable) < len(completions) or not completions:
            finish = completions[0].finish if completions else "no choice"
            empty = max(1, len(completions) - len(usable))
            message = f"{card.name} gave {empty} empty or endless answer(s), finish reason {finish}"
            message += f"; raise {ask.agent}.max_tokens" if finish == "length" else ""
            useless = ProviderProtocolError(message, provider=card.provider)
            self.fail(ask.agent, useless)
        cut_off = any(completion.finish == "length" for completion in usable)
        if not cut_off or self.plain or self.settings.policy == "paper":  # SPEC 3.6 is not in the paper
            return usable
        continued = (self._continued(completion, ask, card, request, on_delta) for completion in usable)
        return await asyncio.gather(*continued)

    async def _continued(
        self, completion: Completion, ask: Ask, card: ModelCard, request: Request, on_delta: OnDelta | None
    ) -> Completion:
        """The completion, continued once if it was cut off and calls, money and time allow (SPEC 3.6)."""
        kind = self.settings.providers[card.provider].kind
        given = request.parameters
        # a client that sets a limit, tools or a format gets the answer as it is
        set_by_client = given.max_tokens is not None or given.tools or given.format is not None
        if completion.finish != "length" or set_by_client or kind == "replay":
            return completion
        make = partial(self.candidate, ask, card, completion)
        if (await run_by_size(len(completion.text), make)).stated:
            return completion
        # the conversation with the text so far; a local model continues its own turn
        so_far = Message("assistant", completion.text if kind == "local" else completion.text.rstrip())
        turns = (so_far,) if kind == "local" else (so_far, Message("user", _CONTINUE_PROMPT))
        further = replace(request, messages=(*request.messages, *turns), n=1)
        length = sum(len(message.text) for message in further.messages)
        if card.context and length // 3 + (further.sampling.max_tokens or 0) > card.context:
            return completion
        try:
            self.affordable(card, further)
            rest = (await self.complete(ask, card, further, on_delta)).completions[0]
        except (BudgetExceeded, ProviderError, IndexError):
            return completion  # the answer that exists is used; the trace says that it was cut off
        between = "" if kind == "local" or completion.text[-1:].isspace() else " "
        text = completion.text + between + rest.text
        return Completion(text, completion.tokens + rest.tokens, rest.finish, rest.tool_calls)

    def candidate(
        self, ask: Ask, card: ModelCard, completion: Completion, proposal: Candidate | None = None
    ) -> Candidate:
        """The candidate in a completion: the answer, a verifier's judgment, and whether it was stated."""
        text = completion.text
        calls = completion.tool_calls
        prompt = self.prompts[ask.step]
        judgment = extract_judgment(text) if ask.verify and prompt.asks_for_judgment else None
        if calls:
            answer: str | None = "\n".join(map(str, calls))
        elif self.query.parameters.format is not None:
            answer = canonical_json(text)
        else:
            answer = find_answer(text)
        # The answer of a verifier that only says CORRECT is the proposal.
        # without an instruction to mark it, any whole reply is an answer, and any piece of open-ended prose
        whole = self.open_ended or completion.finish != "length"
        stated = answer is not None or (whole and not prompt.asks_for_marker) or judgment is True
        stated = stated or (judgment is None and completion.finish != "length" and is_bare_answer(text))
        if answer is None:
            answer = proposal.answer if judgment and proposal is not None else text.strip()
        return Candidate(
            step=ask.step,
            agent=ask.agent,
            model=card.name,
            text=text,
            answer=answer,
            tokens=completion.tokens,
            judgment=judgment,
            finish=completion.finish,
            tool_calls=calls,
            stated=stated,
            fault=format_fault(text, calls, self.query.parameters),
            wire=completion.wire,
        )


def is_usable(completion: Completion) -> bool:
    """Whether a completion is neither empty nor endless."""
    return len(completion.text) <= MAX_TEXT and bool(completion.text.strip() or completion.tool_calls)


_CONTEXT_LENGTH_CODES = frozenset({"context_length_exceeded", "request_too_large", "exceed_context_size_error"})


def _another_may_answer(error: OdarError) -> bool:
    """Whether another model may succeed: after 429, a failure, or a conversation that is too long.

    >>> [_another_may_answer(ProviderError("", status=status)) for status in (400, 429, 503)]
    [False, True, True]
    """
    if not isinstance(error, ProviderError):
        return False
    refused = error.status in (413, 429) or (error.status or 0) >= 500 or error.code in _CONTEXT_LENGTH_CODES
    too_long = error.status == 400 and ("context" in str(error) or "too long" in str(error))
    return refused or too_long or isinstance(error, ProviderUnreachable)


def _draft(candidate: Candidate) -> str:
    """The text and the tool calls of a candidate, for a verifier."""
    calls = "\n".join(f"(calls the tool {call})" for call in candidate.tool_calls)
    return "\n".join(part for part in (candidate.text.strip(), calls) if part)


def _seeded(sampling: Sampling, index: int) -> Sampling:
    """The sampling for one of several samples; each gets its own seed, so that they differ."""
    return sampling if sampling.seed is None or index == 0 else replace(sampling, seed=sampling.seed + index)


T = TypeVar("T")


async def gather_or_cancel(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at once; if one raises, cancel and await the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def token_limit(agent: AgentSettings, card: ModelCard) -> int:
    """Our own limit on an answer: with room for reasoning, and at most half of a small model's context."""
    longest = agent.max_tokens + REASONING_ROOM * REASONING_TOKENS.get(card.effort, 0)
    return min(longest, max(1, card.context // 2)) if card.context else longest


def _agent_request_template(
    agent: AgentSettings, card: ModelCard, parameters: ChatParameters, seed: int | None
) -> Request:
    """A request with the client's parameters, else the agent's; with log-probabilities if possible (SPEC 5)."""
    longest = token_limit(agent, card)
    if parameters.max_tokens is not None:
        longest = min(parameters.max_tokens, card.context) if card.context else parameters.max_tokens
    sampling = Sampling(
        temperature=_or_default(parameters.temperature, agent.temperature),
        top_p=_or_default(parameters.top_p, agent.top_p),
        max_tokens=longest,
        stop=_or_default(parameters.stop, agent.stop),
        seed=_or_default(parameters.seed, seed),
    )
    return _request(card, sampling, agent.timeout_s, logprobs=card.logprobs)


def plain_request_template(
    card: ModelCard, parameters: ChatParameters, timeout_s: float, *, priced: bool = False
) -> Request:
    """A request with the client's parameters only, without fields that the model rejects.

    If money is limited (`priced`), the length limit uses the field name that this model is known to support.
    """
    sampling = Sampling(
        parameters.temperature, parameters.top_p, parameters.max_tokens, parameters.stop or (), parameters.seed
    )
    request = _request(card, sampling, timeout_s, logprobs=parameters.top_logprobs is not None)
    own_field = "" if priced else parameters.max_tokens_field
    extra = card.extra if card.effort else {}
    return replace(request, max_tokens_field=own_field or card.max_tokens_field, extra=extra)


def _request(card: ModelCard, sampling: Sampling, timeout_s: float, *, logprobs: bool) -> Request:
    return Request(
        card.id,
        (),
        sampling,
        logprobs=logprobs,
        timeout_s=timeout_s,
        max_tokens_field=card.max_tokens_field,
        drop=card.drop,
        extra=card.extra,
        effort=card.effort,
        cache=card.price is None or card.price.free or card.price.written is not None,
    )


def _or_default(value: T | None, default: T) -> T:
    return default if value is None else value
