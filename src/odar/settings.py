"""Every setting there is, its type, its bounds and what it means. `config.py` fills them in.

The defaults of SPEC 2.7, 3 and 5 are not here but in `profiles/*.toml`: one place for each number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from odar.catalogue import ModelCard, Price
from odar.errors import SettingsError, UnknownName
from odar.forwarding import unusable_forward
from odar.types import Role

_REQUIRED: Any = object()
ROUTING_MODES = ("prior", "posterior")
LOG_FORMATS = ("text", "json")
IMAGE_URLS = ("public", "any", "none")


def setting(
    doc: str,
    default: Any = _REQUIRED,
    *,
    ge: float = -math.inf,
    gt: float = -math.inf,
    le: float = math.inf,
) -> Any:
    """A dataclass field that knows its bounds and can explain itself."""
    metadata = {"doc": doc, "ge": ge, "gt": gt, "le": le}
    if default is _REQUIRED:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """One agent (SPEC 3)."""

    model: str = setting("a model of the catalogue, provider/model, or gguf:/path/file.gguf")
    temperature: float = setting("sampling temperature", ge=0, le=2)
    top_p: float = setting("nucleus sampling", gt=0, le=1)
    max_tokens: int = setting("longest answer, in tokens", ge=1)
    timeout_s: float = setting("time for one call, retries included", gt=0)
    stop: tuple[str, ...] = setting("strings that end an answer", ())
    fallbacks: tuple[str, ...] = setting(
        "models to ask in this order if the model's provider refuses with 429, fails or is left alone, or if the "
        'conversation is too long for it; model = ["a", "b"] sets them too',
        (),
    )
    alternatives: tuple[str, ...] = setting("models to use instead where they see or score better", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """How a query finds its path (SPEC 2)."""

    estimator: str = setting("difficulty estimator: a name, or a file of `odar calibrate --difficulty`")
    tau1: float = setting("below: Simple", ge=0, le=1)
    tau2: float = setting("from here on: Hard", ge=0, le=1)
    tau1_by_expert: Mapping[str, float] = setting("tau1 of single experts, such as { math = 0.2 }", {}, ge=0, le=1)
    tau2_by_expert: Mapping[str, float] = setting("tau2 of single experts, such as { math = 0.6 }", {}, ge=0, le=1)
    samples: int = setting("slow samples on the Hard path", ge=1, le=64)
    mode: str = setting(
        "prior: by the question alone; posterior: look at the fast answer first, where it can be scored"
    )
    clearly_hard: float = setting("a prior from here on starts the slow samples at once", 0.85, ge=0, le=1)
    target_calls: float | None = setting("mean calls of a question; τ1 and τ2 move to meet it", None, ge=1)
    target_cost_usd: float | None = setting("the same in US dollars; only one of the two", None, gt=0)
    learn: bool = setting(
        "let feedback move τ1 and τ2 within the certified region (odar calibrate --at-most-worse)", False
    )
    second_opinion: bool = setting(
        "buy a second fast answer where the first is looked at, and see whether they agree: one more call; not "
        "under a target of fewer than 3 calls",
        False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """Which rules are at work (SPEC 4.4)."""

    expert: bool = setting("choose an expert; off: general", True)
    models: bool = setting("choose among alternatives; off: the default pair", True)
    strategy: bool = setting("choose a path by difficulty; off: always Medium", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionSettings:
    """How the candidates become one answer (SPEC 5)."""

    rule: str = setting("fusion rule by name")
    varentropy_weight: float = setting("λ in F = E + λ·V", ge=0)
    beta: float = setting("β of the answer free energy; inf picks the best single candidate", ge=0)
    stop_confidence: float | None = setting(
        "stop sampling when the leading answer stays ahead with this probability; none takes every sample",
        None,
        ge=0.5,
        le=1,
    )
    first_wave: int = setting("slow samples before the first look, where sampling may stop early", 3, ge=1)
    missing_limit: float = setting("share of tokens without log-probs up to which free energy decides", ge=0, le=1)
    surrogate: str = setting("model that scores the answers of models without log-probs; empty: none does", "")
    similarity: str = setting(
        "how free text is compared: lexical, minilm (after `odar pull all-minilm-l6-v2`) or none", "lexical"
    )
    judge: str = setting("slow: on the Hard path the slow model chooses among free-text answers; one more call", "")
    synthesis: bool = setting("with a judge: it writes an answer from the candidates instead of naming one", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentSettings:
    """μ and σ of served traffic (SPEC 5.5)."""

    running: bool = setting(
        "use them for models without calibration, from 50 served candidates on, and watch the others for drift",
        True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Hard limits of one request (SPEC 6.2)."""

    deadline_s: float = setting("wall time of the whole request", gt=0)
    max_calls: int | None = setting("model invocations", None, ge=1)
    max_cost_usd: float | None = setting("US dollars", None, ge=0)
    continue_cut_off: bool = setting(
        "continue an answer once, by one more call, that ended at max_tokens before it stated its answer", True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How a call is tried again."""

    attempts: int = setting("tries in all", 3, ge=1, le=20)
    base_s: float = setting("first pause, doubled each time", 0.5, ge=0)
    max_s: float = setting("longest pause", 8.0, ge=0)
    max_retry_after_s: float = setting("longest pause that a provider may ask for (retry-after)", 60.0, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Models that run in this process."""

    threads: int = setting("threads of each model; 0 chooses by the idle cores", 0, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`odar serve`: the API that other programs talk to."""

    host: str = setting("address to listen on; only loopback without keys", "127.0.0.1")
    port: int = setting("port to listen on; 0 takes a free one", 8088, ge=0, le=65535)
    require_keys: bool | None = setting(
        "every request needs a key; none: where a key exists at the start or later, or `host` is not loopback",
        None,
    )
    metrics_allow: tuple[str, ...] = setting(
        "addresses and networks (10.1.2.3, 10.0.0.0/8) that may read /metrics without a key, besides this machine",
        (),
    )
    cors_origins: tuple[str, ...] = setting(
        "origins of web pages that may call the gateway from a browser, such as https://chat.example.com",
        (),
    )
    prompts: str = setting("prompt set for conversations; must not change the answer's form", "chat")
    max_tokens: int = setting("longest answer where the client sets none", 4096, ge=1)
    reply_timeout_s: float = setting("least time an agent gets for a reply, which may be long here", 60.0, gt=0)
    max_in_flight: int = setting("requests at a time; more are refused with 429", 512, ge=1)
    max_body_mb: float = setting("largest request, in megabytes; images are the large ones", 32.0, gt=0)
    image_urls: str = setting(
        "addresses of images that upstreams may be told to fetch: public, any or none", "public"
    )
    body_timeout_s: float = setting("time a client has to send its request", 30.0, gt=0)
    header_timeout_s: float = setting("time a client has to send the headers of a request", 10.0, gt=0)
    write_timeout_s: float = setting("time a client has to read what was sent; then it is disconnected", 10.0, gt=0)
    max_connections_per_peer: int = setting(
        "connections of one address (IPv6: of one /64) at a time; a reverse proxy is one address", 1024, ge=1
    )
    stream_progress: bool = setting(
        "streams show drafts and what is being done as reasoning, until the answer is chosen", True
    )
    keepalive_s: float = setting("seconds between signs of life in a stream that has no text yet", 5.0, gt=0)
    drain_s: float = setting("seconds running requests get to finish after SIGTERM", 30.0, ge=0)
    notice_s: float = setting("seconds between /readyz turning 503 and closing the door", 1.0, ge=0)
    breaker_failures: int = setting("failures in a row after which a provider is left alone", 5, ge=1)
    breaker_cooldown_s: float = setting("how long it is left alone at first", 10.0, gt=0)
    sessions: int = setting(
        "conversations that keep their model, remembered by this process; 0 routes every request by itself",
        10_000,
        ge=0,
    )
    log_format: str = setting("form of log lines on standard error: text or json", "text")
    log_requests: bool = setting("a log line for every question, without its texts", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where traces and API keys are kept, and how much of a trace."""

    enabled: bool = setting("record a trace of every query", True)
    url: str | None = setting("a file, sqlite:///file or postgresql://…; none: a file in your data folder", None)
    content: bool = setting("keep queries, answers and tokens too; off: lengths, features and figures alone", False)
    responses: bool = setting(
        "keep the conversations of /v1/responses, texts included, for clients that send previous_response_id", False
    )
    retention_days: int = setting("traces older than this are deleted; 0 keeps all", 30, ge=0)
    flush_interval_s: float = setting("longest wait before traces are written", 0.5, gt=0, le=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """OpenTelemetry spans of every query; where they go is said by the standard OTEL_* variables."""

    enabled: bool | None = setting(
        "make spans; none: where OTEL_EXPORTER_OTLP_ENDPOINT or a similar variable is set", None
    )
    propagate: bool = setting("send traceparent to providers, so that their spans join ours", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """A way to reach models."""

    kind: str = setting("wire protocol: local, openai, anthropic, replay")
    base_url: str = setting("where it listens", "")
    api_key_env: str | None = setting("environment variable that holds the key", None)
    api_key_file: str | None = setting("file that holds the key; readable by you alone", None)
    ca_file: str = setting("PEM file of the CAs to trust in place of the system's; SSL_CERT_FILE works too", "")
    client_cert: str = setting("PEM file of the certificate that identifies this client to the server", "")
    client_key: str = setting("PEM file of its private key; leave it out if client_cert holds it too", "")
    recordings: str = setting("for kind replay: the JSONL file to play back", "")
    forward: tuple[str, ...] = setting(
        "further fields of gateway clients' requests that are sent on, such as top_k or chat_template_kwargs", ()
    )
    requests_per_min: int | None = setting("requests that a batch makes in any 60 seconds, at most", None, ge=1)
    tokens_per_min: int | None = setting("tokens that a batch spends in any 60 seconds, at most", None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """US dollars per million tokens; leave out what you do not know."""

    input: float | None = setting("prompt tokens", None, ge=0)
    cached: float | None = setting("prompt tokens from the provider's cache; as input if left out", None, ge=0)
    output: float | None = setting("generated tokens", None, ge=0)
    written: float | None = setting("prompt tokens that are written to the provider's cache", None, ge=0)
    written_1h: float | None = setting("the same, kept for an hour", None, ge=0)
    up_to: int | None = setting("longest prompt these prices hold for, in tokens", None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A catalogue entry (SPEC 4.2)."""

    provider: str = setting("one of the providers")
    id: str = setting("what the provider calls it; the entry's name if left out", "")
    context: int | None = setting("tokens, prompt and answer together", None, ge=1)
    images: bool = setting("sees images", False)
    logprobs: bool = setting("returns log-probabilities", False)
    prompt_logprobs: bool = setting("scores a given text, as vLLM's prompt_logprobs do", False)
    n: bool = setting("several samples in one request", False)
    price: PriceSettings = field(default_factory=PriceSettings)
    price_date: str | None = setting("the day the price was read", None)
    max_tokens_field: str = setting("name of the length limit in the body", "max_tokens")
    drop: tuple[str, ...] = setting("body fields this model refuses", ())
    extra: Mapping[str, Any] = setting("further body fields, sent as they are", {})
    efforts: tuple[str, ...] = setting(
        "levels of reasoning effort that it knows, for clients of every protocol", ()
    )
    scores: Mapping[str, float] = setting("accuracy by expert, where it has been measured", {}, ge=0, le=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings. Make one with `odar.load_settings()`."""

    profile: str = setting("local, tiny, custom, open, paper, or a TOML file")
    prompts: str = setting("prompt set by name, or a folder with answer.toml, verify.toml, solve.toml")
    fast: AgentSettings = field()
    slow: AgentSettings = field()
    routing: RoutingSettings = field()
    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    fusion: FusionSettings = field()
    alignment: AlignmentSettings = field(default_factory=AlignmentSettings)
    limits: LimitSettings = field()
    retry: RetrySettings = field(default_factory=RetrySettings)
    local: LocalSettings = field(default_factory=LocalSettings)
    calibration: str = setting("what was fitted to these models: a file by `odar calibrate`, or tiny", "")
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    seed: int | None = setting("makes sampling repeatable where the provider can", None, ge=0)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    origins: Mapping[tuple[str, ...], str] = field(default_factory=dict, repr=False, compare=False)
    """Where each value came from, by key path."""
    profile_reason: str = field(default="", compare=False)
    """Why this profile: named by the user, or chosen by what is there."""

    def card(self, model: str) -> ModelCard:
        """What is known of a model.

        A name outside the catalogue may be written `provider/model`: its price is unknown, log-probs are
        requested, samples are separate calls. `gguf:/path/file.gguf` is a file that runs in this process.
        """
        if model in self.models:
            return _card(model, self.models[model])
        if model.startswith("gguf:"):
            can: dict[str, Any] = {"context": 4096, "logprobs": True, "prompt_logprobs": True, "n": True}
            return ModelCard(model, "local", model, price=Price(0, 0, 0), **can)
        provider, _, rest = model.partition("/")
        if rest and provider in self.providers and self.providers[provider].kind != "local":
            return ModelCard(
                name=model, provider=provider, id=rest, logprobs=True, prompt_logprobs=True, images=True
            )
        raise UnknownName("model", model, self.models)

    def contexts(self, provider: str) -> dict[str, int]:
        """Context length by model id, for the provider's models that name one."""
        cards = [self.card(name) for name, entry in self.models.items() if entry.provider == provider]
        return {card.id: card.context for card in cards if card.context}

    def agent(self, role: Role) -> AgentSettings:
        """The settings of one agent."""
        return self.fast if role is Role.FAST else self.slow

    def models_of(self, role: Role) -> tuple[str, ...]:
        """The models one agent may use, its default first and its fallbacks last."""
        agent = self.agent(role)
        return tuple(dict.fromkeys((agent.model, *agent.alternatives, *agent.fallbacks)))

    def _check_experts(self) -> None:
        """Refuse thresholds of unknown experts, and a tau1 above its tau2."""
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

    def check(self) -> None:
        """Refuse settings that contradict each other or name what is not there."""
        self._check_experts()
        if self.routing.tau1 > self.routing.tau2:
            raise SettingsError(
                f"routing.tau1 = {self.routing.tau1} is above routing.tau2 = {self.routing.tau2}; "
                "Simple ends at tau1, Hard begins at tau2"
            )
        if self.routing.target_calls is not None and self.routing.target_cost_usd is not None:
            raise SettingsError("routing.target_calls and routing.target_cost_usd are both set; keep one of them")
        if self.routing.target_cost_usd is not None:
            for name in (self.fast.model, self.slow.model):
                if self.card(name).price is None:
                    raise SettingsError(
                        f'routing.target_cost_usd needs the price of {name!r}; set [models."{name}"] price, '
                        "or use routing.target_calls"
                    )
        if self.routing.mode not in ROUTING_MODES:
            raise UnknownName("routing.mode", self.routing.mode, ROUTING_MODES)
        if self.gateway.log_format not in LOG_FORMATS:
            raise UnknownName("gateway.log_format", self.gateway.log_format, LOG_FORMATS)
        if self.gateway.image_urls not in IMAGE_URLS:
            raise UnknownName("gateway.image_urls", self.gateway.image_urls, IMAGE_URLS)
        for name, provider in self.providers.items():
            if bad := unusable_forward(provider.forward):
                raise SettingsError(
                    f"providers.{name}.forward = {', '.join(bad)}: ODAR sets that itself; leave it out"
                )
        if self.fusion.judge not in ("", Role.SLOW):
            raise UnknownName("fusion.judge", self.fusion.judge, [Role.SLOW.value, ""])
        if self.fusion.synthesis and not self.fusion.judge:
            raise SettingsError('fusion.synthesis = true needs a judge that writes: set fusion.judge = "slow"')
        surrogate = self.fusion.surrogate
        for name in (*self.models_of(Role.FAST), *self.models_of(Role.SLOW), *([surrogate] if surrogate else [])):
            card = self.card(name)
            if card.provider not in self.providers:
                raise UnknownName("provider", card.provider, self.providers)
        if surrogate and not self.card(surrogate).prompt_logprobs:
            can = sorted(name for name, entry in self.models.items() if entry.prompt_logprobs)
            raise SettingsError(
                f"fusion.surrogate = {surrogate!r} cannot score a given text; these can: {', '.join(can)} "
                f'(if it can all the same, say so: [models."{surrogate}"] prompt_logprobs = true)'
            )


def _card(name: str, entry: ModelSettings) -> ModelCard:
    price = entry.price
    known: Price | None = None
    if price.input is not None and price.output is not None:
        # An unknown price of cached input is taken as the full one: the bill may be too high, never too low.
        cached = price.input if price.cached is None else price.cached
        known = Price(price.input, cached, price.output, price.written, price.written_1h, price.up_to)
    same = {each.name: getattr(entry, each.name) for each in fields(entry) if each.name not in ("id", "price")}
    return ModelCard(name=name, id=entry.id or name, price=known, **same)
