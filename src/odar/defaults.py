"""The models of the agents if the user names none: of the API keys that are set, or of a server that answers.

Among several vendors the fast model is the cheapest, preferably with log-probabilities. The second is the cheapest
of another family. The slow model is the most expensive of the strong ones. Among the models of local servers, the
fast one is the smallest and the slow one the largest.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from odar.catalogue import ModelCard
from odar.prices import find_price

TIMEOUT_S = 0.5
_MAX_BYTES = 1_000_000
_SIZE = re.compile(r"(?<![a-wyz0-9.])(\d+(?:\.\d+)?)([bm])(?![a-z])", re.IGNORECASE)
_NOT_FOR_CHAT = re.compile(r"embed|bge-|minilm|rerank|whisper|guard", re.IGNORECASE)
Tables = Mapping[str, Mapping[str, Any]]


class DefaultModels(NamedTuple):
    """The models of the agents, and why they were chosen."""

    fast: str
    slow: str
    reason: str
    second: str = ""
    """A cheap model of another family than the fast one; may be empty."""


def models_of_keys(providers: Tables, models: Tables, environ: Mapping[str, str]) -> DefaultModels | None:
    """Choose among the cheap and strong models of the vendors whose API key is set; None without such a key.

    Args:
        providers: the tables of the settings, by name.
        models: the catalogue and the user's own entries, by name.
        environ: the environment.
    """
    keys = keys_of(providers, environ)
    vendors = [name for name in keys if providers[name].get("cheap") and providers[name].get("strong")]
    if not vendors:
        return None

    def price(name: str, model: str) -> float:
        own = models.get(model, {}).get("price", {})
        known = find_price(name, providers[name].get("base_url", ""), model.removeprefix(f"{name}/"))
        prices = {"input": known.price.input, "output": known.price.output, **own} if known else own
        return float(prices.get("input") or 0.0) + float(prices.get("output") or 0.0)

    cheap = [
        providers[name]["cheap"] for name in sorted(vendors, key=lambda name: price(name, providers[name]["cheap"]))
    ]
    with_logprobs = [model for model in cheap if models.get(model, {}).get("logprobs")]
    strong = providers[max(vendors, key=lambda name: price(name, providers[name]["strong"]))]["strong"]
    are = "is" if len(vendors) == 1 else "are"
    named = " and ".join(keys[name] for name in vendors)
    fast = (with_logprobs or cheap)[0]
    second = next((model for model in cheap if _family(model) != _family(fast)), "")
    return DefaultModels(fast, strong, f"{named} {are} set", second)


def _family(model: str) -> str:
    return ModelCard(model, "", model).model_family


def keys_of(providers: Tables, environ: Mapping[str, str]) -> dict[str, str]:
    """Where each provider's API key comes from, for the providers that have one."""
    found = {}
    for name, table in providers.items():
        variable = table.get("api_key_env") or ""
        if table.get("api_key_file"):
            found[name] = f"providers.{name}.api_key_file"
        elif environ.get(variable, "").strip():
            found[name] = variable
    return found


def models_of_servers(providers: Tables) -> DefaultModels | None:
    """Ask the servers that need no key for their models, and choose the smallest and the largest of them.

    None if no server answers. Blocks for at most about a second; a port where nothing listens refuses at once.
    """
    addresses: dict[str, str] = {}
    for name, table in providers.items():
        url = table.get("base_url")
        if table.get("kind") == "openai" and url and not table.get("api_key_env") and not table.get("api_key_file"):
            addresses.setdefault(url, name)
    with ThreadPoolExecutor(max(1, len(addresses)), "odar-look") as pool:
        found = zip(addresses.items(), pool.map(served_models, addresses), strict=True)
        served = [(size, name, url, model) for (url, name), sizes in found for model, size in sizes.items()]
    if not served:
        return None
    ranked = sorted(served, key=itemgetter(0))
    fast, slow = ranked[0], ranked[-1]
    servers = dict.fromkeys(f"{name} at {url}" for _, name, url, _ in (fast, slow))
    answers = "answers" if len(servers) == 1 else "answer"
    reason = f"{' and '.join(servers)} {answers}"
    return DefaultModels(f"{fast[1]}/{fast[3]}", f"{slow[1]}/{slow[3]}", reason)


def served_models(base_url: str) -> dict[str, float]:
    """The chat models that a server lists, and their billions of parameters (0 if unknown)."""
    listed = _get(f"{base_url.rstrip('/')}/models")
    entries = listed.get("data") if isinstance(listed, dict) else None
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str) or _NOT_FOR_CHAT.search(name):
            continue
        meta = entry.get("meta")  # of llama.cpp
        parameters = meta.get("n_params") if isinstance(meta, dict) else None
        found[name] = parameters / 1e9 if isinstance(parameters, int) else parameter_count(name)
    if not all(found.values()):
        sizes = _ollama_sizes(base_url)
        found = {name: size or sizes.get(name, 0.0) for name, size in found.items()}
    return found


def parameter_count(name: str) -> float:
    """The parameters that a name states, in billions; 0 if it states none.

    >>> parameter_count("qwen3:4b"), parameter_count("Qwen/Qwen3-30B-A3B"), parameter_count("smollm2:135m")
    (4.0, 30.0, 0.135)
    >>> parameter_count("llama3:latest")
    0.0
    """
    sizes = [float(number) / (1 if unit in "bB" else 1000) for number, unit in _SIZE.findall(name)]
    return max(sizes, default=0.0)


def _ollama_sizes(base_url: str) -> dict[str, float]:
    """The sizes that Ollama's own API knows, for names such as llama3:latest."""
    parts = urlsplit(base_url)
    listed = _get(f"{parts.scheme}://{parts.netloc}/api/tags")
    entries: Iterable[Any] = (listed.get("models") if isinstance(listed, dict) else None) or ()
    sizes = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(details := entry.get("details"), dict):
            sizes[str(entry.get("name"))] = parameter_count(str(details.get("parameter_size")))
    return sizes


def _get(url: str) -> Any:
    """The JSON at a URL, or None if the request fails."""
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", parts.path, headers={"accept": "application/json"})
            response = connection.getresponse()
            return json.loads(response.read(_MAX_BYTES)) if response.status == 200 else None
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException, RecursionError):
        return None
