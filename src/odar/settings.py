"""All settings with types, bounds and documentation. `config.py` loads their values.

The defaults of SPEC 2.7, 3 and 5 are in `profiles/*.toml`, so that each number is in one place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from odar.catalogue import REASONING_TOKENS, ModelCard, Price, split_effort
from odar.errors import InputError, SettingsError, UnknownName
from odar.forwarding import RESERVED
from odar.policy.dial import Dial
from odar.prices import find_price, table_date
from odar.types import FAST, MAX_STAGES, SECOND, SLOW, Stage

POLICIES = ("cascade", "paper")
"""Names of the policies; any other value of `policy` is a fixed list of stages."""
LOG_FORMATS = ("text", "json")


def setting(
    doc: str,
    default: Any = MISSING,
    *,
    ge: float = -math.inf,
    gt: float = -math.inf,
    le: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with documentation and bounds; with `choices`, one of these words."""
    metadata = {"doc": doc, "ge": ge, "gt": gt, "le": le, "choices": choices}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """One agent (SPEC 3, 9.1)."""

    model: str = setting("a model of the catalogue, provider/model, either @effort, or gguf:/path/file.gguf")
    effort: str = setting(
        "reasoning effort of `model`; the same as model@effort. none: no reasoning; empty: the model's own default",
        "", choices=tuple(REASONING_TOKENS),
    )  # fmt: skip
    temperature: float = setting("sampling temperature", ge=0, le=2)
    top_p: float = setting("nucleus sampling", gt=0, le=1)
    max_tokens: int = setting("maximum length of the answer to an exact question, in tokens", ge=1)
    timeout_s: float = setting("timeout of one call, retries included", gt=0)
    stop: tuple[str, ...] = setting("strings that end an answer", ())
    fallbacks: tuple[str, ...] = setting(
        'models to use if `model` fails or is too short for the conversation; also model = ["a", "b"]', ()
    )
    alternatives: tuple[str, ...] = setting("models to use for images, or where their scores are higher", ())

    def with_model(self, model: str) -> AgentSettings:
        """The settings with another model, and none to choose instead or to fall back on."""
        return replace(self, model=model, alternatives=(), fallbacks=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """The difficulty and the thresholds of the paper's policy (SPEC 2), and the cascade (SPEC 9)."""

    estimator: str = setting("difficulty estimator: a name, or a file of `odar train`")
    tau1: float = setting("a lower difficulty takes the Simple path", ge=0, le=1)
    tau2: float = setting("this difficulty or more takes the Hard path", ge=0, le=1)
    tau1_by_expert: Mapping[str, float] = setting("tau1 of single experts, such as { math = 0.2 }", {}, ge=0, le=1)
    tau2_by_expert: Mapping[str, float] = setting("tau2 of single experts, such as { math = 0.6 }", {}, ge=0, le=1)
    samples: int = setting("slow samples on the Hard path", ge=1, le=64)
    stages: tuple[str, ...] = setting(
        'the stages of the cascade in order, such as "fast", "fast+second", "slow*2"; empty: chosen by the agents',
        (),
    )
    dial: str = setting(
        "economy, balanced, quality, or the least gain in points of accuracy that a slow call must bring",
        "balanced",
    )
    value_usd: float | None = setting(
        "what a right answer is worth, in US dollars; in place of the dial", None, gt=0
    )
    target_calls: float | None = setting("mean calls of a question to meet; in place of the dial", None, ge=1)
    target_cost_usd: float | None = setting(
        "mean US dollars of a question to meet; in place of the dial", None, gt=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionSettings:
    """Fusion of the candidates into one answer (SPEC 5)."""

    rule: str = setting("fusion rule by name")
    varentropy_weight: float = setting("λ in F = E + λ·V", ge=0)
    beta: float = setting("β of the answer free energy; inf picks the best single candidate", ge=0)
    similarity: str = setting(
        "how free text is compared: lexical, or none for exactly", "lexical", choices=("lexical", "none")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Hard limits of one request (SPEC 6.2)."""

    deadline_s: float = setting("seconds for the whole request", gt=0)
    max_calls: int | None = setting("maximum number of model calls", None, ge=1)
    max_cost_usd: float | None = setting("maximum cost in US dollars", None, ge=0)
    max_tokens: int = setting(
        "maximum length of the answer to an open-ended request, in tokens, where the caller sets none", 4096, ge=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Models that run in this process."""

    threads: int = setting("threads of each model; 0: as many as there are idle cores", 0, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The HTTP gateway, `odar serve`."""

    host: str = setting("address to listen on; without keys only a loopback address", "127.0.0.1")
    port: int = setting("port to listen on; 0 takes a free one", 8088, ge=0, le=65535)
    workers: int | None = setting(
        "processes that answer; none: one per core up to 4, or 1 if a model runs in the process", None, ge=1, le=64
    )
    require_keys: bool | None = setting(
        "every request needs a key; none: if one exists or host is not loopback", None
    )
    metrics_allow: tuple[str, ...] = setting("networks (10.0.0.0/8) that may read /metrics without a key", ())
    cors_origins: tuple[str, ...] = setting("origins of web pages (https://chat.example.com) that may call it", ())
    max_in_flight: int = setting("maximum number of concurrent requests; more are refused with 429", 512, ge=1)
    max_body_mb: float = setting(
        "maximum size of a request, in megabytes; images are the largest part. All requests together: 8 times it",
        32.0,
        gt=0,
    )
    image_urls: str = setting(
        "image URLs that are passed on: public, any or none", "public", choices=("public", "any", "none")
    )
    stream_progress: bool = setting("stream drafts and progress as reasoning until the answer is chosen", True)
    drain_s: float = setting("seconds that running requests have to finish after SIGTERM", 30.0, ge=0)
    sessions: int = setting(
        "conversations that keep their model; 0: every request is routed by itself", 10_000, ge=0
    )
    log_format: str = setting("format of log lines on standard error: text or json", "text", choices=LOG_FORMATS)
    log_requests: bool = setting("log a line for every question, without texts", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The database of traces and API keys."""

    enabled: bool = setting("record a trace of every question", True)
    url: str | None = setting("a file, sqlite:///file or postgresql://…; none: a file in your data folder", None)
    content: bool = setting("store questions, answers and tokens too, not only lengths and figures", False)
    responses: bool = setting("store texts of /v1/responses, for clients that send previous_response_id", False)
    retention_days: int = setting("traces older than this are deleted; 0: keep all", 30, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveSettings:
    """Questions that the gateway also answers in the background, to compare the cascade with slow (SPEC 10)."""

    enabled: bool = setting(
        "pass every request through to the slow model, and only observe what the cascade would do", False
    )
    share: float | None = setting(
        "share of questions that are observed; none: 0.2 with enabled, else 0", None, ge=0, le=1
    )
    budget_usd_day: float = setting("US dollars a day for observing, at most", 1.0, ge=0)
    at_most_differ: float = setting(
        "how much more often the cascade may differ from slow than slow from itself; beyond it, slow answers", 0.05,
        ge=0, le=1,
    )  # fmt: skip

    @property
    def used_share(self) -> float:
        default = 0.2 if self.enabled else 0.0
        return default if self.share is None else self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """OpenTelemetry spans and metrics of every question; the standard OTEL_* variables say where they are sent."""

    enabled: bool | None = setting(
        "create spans and metrics; none: if an OTEL_EXPORTER_OTLP_*ENDPOINT is set", None
    )
    content: bool = setting("put questions and answers on the spans of calls", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """A server or runtime of models."""

    kind: str = setting("wire protocol: local, openai, anthropic, replay")
    base_url: str = setting("address of the server", "")
    api_key_env: str | None = setting("environment variable that holds the key", None)
    api_key_file: str | None = setting("file that holds the key; only its owner may be able to read it", None)
    ca_file: str = setting("PEM file of the CAs to trust instead of the system's; SSL_CERT_FILE works too", "")
    client_cert: str = setting("PEM file of the certificate that identifies this client to the server", "")
    client_key: str = setting("PEM file of its private key; leave it out if client_cert holds it too", "")
    recordings: str = setting("for kind replay: the JSONL file of recorded replies", "")
    cheap: str = setting("its model for the fast agent where only its key is configured", "")
    strong: str = setting("its model for the slow agent where only its key is configured", "")
    cache_prompts: bool = setting(
        "kind anthropic: set cache_control on prompts that repeat, for clients whose protocol has none", True
    )
    forward: tuple[str, ...] = setting("further fields of clients' requests to forward, such as top_k", ())
    requests_per_min: int | None = setting("maximum number of requests of a batch in any 60 seconds", None, ge=1)
    tokens_per_min: int | None = setting("maximum number of tokens of a batch in any 60 seconds", None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """US dollars per million tokens; leave out unknown prices."""

    input: float | None = setting("prompt tokens", None, ge=0)
    cached: float | None = setting("prompt tokens from the provider's cache; default: as input", None, ge=0)
    output: float | None = setting("generated tokens", None, ge=0)
    written: float | None = setting("prompt tokens that are written to the provider's cache", None, ge=0)
    written_1h: float | None = setting("the same, kept for an hour", None, ge=0)
    up_to: int | None = setting("longest prompt, in tokens, that these prices apply to", None, ge=1)

    def complete(self, known: Price | None = None) -> Price | None:
        """The price; with input and output it is complete, else what is missing is that of `known`."""
        given = {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}
        if "input" in given and "output" in given:
            # If the price of cached input is unknown, use the full price: the cost can be too high, never too low.
            return Price(**{"cached": given["input"], **given})
        return None if known is None else replace(known, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A catalogue entry (SPEC 4.2)."""

    provider: str = setting("one of the providers")
    id: str = setting("name of the model at the provider; default: the name of the entry", "")
    context: int | None = setting("context length in tokens, prompt and answer together", None, ge=1)
    images: bool = setting("accepts images", False)
    logprobs: bool = setting("returns log-probabilities", False)
    n: bool = setting("can return several samples of one request", False)
    price: PriceSettings = field(default_factory=PriceSettings)
    price_date: str | None = setting("the day the price was read", None)
    max_tokens_field: str = setting("name of the length limit in the request body", "max_tokens")
    drop: tuple[str, ...] = setting("fields of the request body that this model rejects", ())
    extra: Mapping[str, Any] = setting("further fields of the request body, sent unchanged", {})
    efforts: tuple[str, ...] = setting("levels of reasoning effort that it supports", ())
    scores: Mapping[str, float] = setting("measured accuracy by expert", {}, ge=0, le=1)
    family: str = setting("models of one family make the same mistakes; default: by the model's name", "")
    parameters: float | None = setting("size in billions, which stands for the price of a free model", None, gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings. Make one with `odar.load_settings()`."""

    profile: str = setting("local, tiny, custom, open, paper, or a TOML file")
    prompts: str = setting("prompt set: chat, default, local, paper, tiny, or a folder of your own")
    policy: str = setting('cascade, paper, or a fixed stage for every question, such as "slow" or "slow*5"')
    fast: AgentSettings = field()
    second: AgentSettings | None = field(default=None)
    slow: AgentSettings = field()
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    routing: RoutingSettings = field()
    fusion: FusionSettings = field()
    limits: LimitSettings = field()
    local: LocalSettings = field(default_factory=LocalSettings)
    calibration: str = setting("file of `odar calibrate`, or a shipped one: local, tiny", "")
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    observe: ObserveSettings = field(default_factory=ObserveSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    seed: int | None = setting("seed of sampling, for providers that support it", None, ge=0)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    origins: Mapping[tuple[str, ...], str] = field(default_factory=dict, repr=False, compare=False)
    """Origin of each value, by key path."""
    profile_reason: str = field(default="", compare=False)
    """Reason for the choice of the profile."""

    def card(self, model: str) -> ModelCard:
        """The catalogue entry of a model.

        A model outside the catalogue is written `provider/model`; the provider can be left out for the models of a
        vendor that the public table of prices knows. Log-probs are requested, samples are separate calls.
        `gguf:/path/file.gguf` is a file that runs in this process. `model@effort` is a model at a level of
        reasoning effort. A price that the settings do not name is that of the public table.
        """
        base, effort = split_effort(model)
        if effort:
            listed = self.models.get(model)
            card = self._card(base, listed) if listed else replace(self.card(base), scores={})
            server = self.providers.get(card.provider)
            listed = listed or self.models.get(base)
            return replace(card.at_effort(effort, server.kind if server else "", listed=bool(listed)), name=model)
        if model in self.models:
            return self._card(model, self.models[model])
        if model.startswith("gguf:"):
            abilities: dict[str, Any] = {"context": 4096, "logprobs": True, "n": True}
            return ModelCard(model, "local", model, price=Price(0, 0, 0), **abilities)
        provider, _, rest = model.partition("/")
        if rest and provider in self.providers and self.providers[provider].kind != "local":
            return self._unlisted_card(model, provider, rest)
        for name, server in self.providers.items():
            if server.strong and find_price(name, server.base_url, model) is not None:
                return self._unlisted_card(model, name, model)
        remedy = "`odar models` lists the known ones; any other is PROVIDER/MODEL, such as openai/gpt-5.1"
        raise UnknownName("model", model, self.models, remedy)

    def _unlisted_card(self, name: str, provider: str, model: str) -> ModelCard:
        logprobs = self.providers[provider].kind != "anthropic"
        return self._card(name, ModelSettings(provider=provider, id=model, logprobs=logprobs, images=True))

    def _card(self, name: str, entry: ModelSettings) -> ModelCard:
        """An entry as a card; what it leaves out comes from the public table, if that knows the model."""
        server = self.providers.get(entry.provider)  # the settings of a recording have none
        known = find_price(entry.provider, server.base_url, entry.id or name) if server else None
        others = {
            each.name: getattr(entry, each.name) for each in fields(entry) if each.name not in ("id", "price")
        }
        price = entry.price.complete(None if known is None else known.price)
        if known is not None:
            others["context"] = entry.context or known.context
            if price == known.price:
                others["price_date"] = table_date()
        return ModelCard(name=name, id=entry.id or name, price=price, **others)

    def contexts(self, provider: str) -> dict[str, int]:
        cards = [self.card(name) for name, entry in self.models.items() if entry.provider == provider]
        return {card.id: card.context for card in cards if card.context}

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents, cheap ones first."""
        second = (SECOND,) if self.second is not None else ()
        return (FAST, *second, SLOW, *self.agents)

    def agent(self, name: str, *, open_ended: bool = False) -> AgentSettings:
        """The settings of one agent; for an open-ended request, with room for a long answer."""
        agents = {FAST: self.fast, SECOND: self.second, SLOW: self.slow, **self.agents}
        if (found := agents.get(name)) is None:
            raise UnknownName("agent", name, self.agent_names)
        return replace(found, max_tokens=max(found.max_tokens, self.limits.max_tokens)) if open_ended else found

    def agent_lines(self) -> list[str]:
        """Lines for odar.toml that name the model of each agent."""
        lines = []
        for name in self.agent_names:
            table = f"agents.{name}" if name in self.agents else name
            lines += ["", f"[{table}]", f"model = {json.dumps(self.agent(name).model)}"]
        return lines

    @property
    def default_models(self) -> dict[str, str]:
        """The default model of each agent."""
        return {name: self.agent(name).model for name in self.agent_names}

    def models_of(self, name: str) -> tuple[str, ...]:
        agent = self.agent(name)
        return tuple(dict.fromkeys((agent.model, *agent.alternatives, *agent.fallbacks)))

    def with_default_models(self) -> Settings:
        """Settings in which no agent has alternatives: every question goes to the default models (SPEC 4.4)."""
        return self.with_agents({name: replace(self.agent(name), alternatives=()) for name in self.agent_names})

    def with_agents(self, agents: Mapping[str, AgentSettings]) -> Settings:
        """Settings with these agents, of which `second` and further ones may be missing."""
        further = {name: agent for name, agent in agents.items() if name not in (FAST, SECOND, SLOW)}
        return replace(self, fast=agents[FAST], second=agents.get(SECOND), slow=agents[SLOW], agents=further)

    def check(self) -> None:
        """Raise UsageError if settings contradict each other or name unknown models or providers."""
        for name, provider in self.providers.items():
            if reserved := sorted(RESERVED.intersection(provider.forward)):
                raise SettingsError(
                    f"providers.{name}.forward = {', '.join(reserved)}: ODAR sets that itself; leave it out"
                )
        for model, entry in self.models.items():
            if entry.provider not in self.providers:
                raise UnknownName(f"provider of models.{model}", entry.provider, self.providers)
        for agent in self.agent_names:
            for model in self.models_of(agent):
                self.card(model)
        self.check_routing()

    def check_routing(self) -> None:
        """Raise SettingsError if thresholds, stages or the dial contradict each other."""
        from odar.policy.experts import Expert

        routing = self.routing
        for name in ("tau1_by_expert", "tau2_by_expert"):
            for expert in getattr(routing, name):
                if expert not in set(Expert):
                    raise UnknownName(f"expert of routing.{name}", expert, [known.value for known in Expert])
                tau1 = routing.tau1_by_expert.get(expert, routing.tau1)
                tau2 = routing.tau2_by_expert.get(expert, routing.tau2)
                if tau1 > tau2:
                    raise SettingsError(f"routing.{name}: for {expert} tau1 = {tau1} is above tau2 = {tau2}")
        if routing.tau1 > routing.tau2:
            raise SettingsError(
                f"routing.tau1 = {routing.tau1} is above routing.tau2 = {routing.tau2}; "
                "Simple ends at tau1, Hard begins at tau2"
            )
        if len(routing.stages) > MAX_STAGES:
            raise SettingsError(
                f"routing.stages has {len(routing.stages)} stages; at most {MAX_STAGES} are allowed"
            )
        for text in (*routing.stages, *self.fixed_stages):
            for agent in Stage.parse(text).agents:
                self.agent(agent)
        try:
            dial = self.dial()
        except InputError as error:
            origin = self.origins.get(("routing", "dial"), "")
            raise SettingsError(f"routing{f' in {origin}' if origin else ''}: {error}") from None
        if dial.target == "cost_usd" or dial.value_usd is not None:
            for agent in self.agent_names:
                if self.card(model := self.agent(agent).model).price is None:
                    raise SettingsError(
                        f'routing: dollars need the price of {model!r}; set [models."{model}"] price, '
                        "or use routing.dial or routing.target_calls"
                    )

    @property
    def fixed_stages(self) -> tuple[str, ...]:
        """The stages of a fixed policy; empty for the others."""
        return () if self.policy in POLICIES else tuple(self.policy.split(","))

    def dial(self, given: Dial | str | float | None = None) -> Dial:
        """The dial that a caller gives; else dollars or a target if one is set, else `routing.dial`."""
        if given is not None:
            return given if isinstance(given, Dial) else Dial.parse(str(given))
        routing = self.routing
        other = Dial.from_options(
            value_usd=routing.value_usd,
            target_calls=routing.target_calls,
            target_cost_usd=routing.target_cost_usd,
        )
        return other or Dial.parse(routing.dial)
