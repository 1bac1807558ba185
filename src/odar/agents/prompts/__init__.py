"""Prompt files: one folder per set, one TOML file per step, identified by MD5 (SPEC 3.1).

A set can have other prompts for open-ended requests, such as writing or small talk, than for exact questions.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from odar.errors import SettingsError
from odar.files import user_path
from odar.policy.kinds import Kind, request_kind
from odar.providers.base import Message
from odar.types import Query, Step

SETS = ("chat", "default", "local", "paper", "tiny")
_CHAT = "chat"
"""The set that leaves a conversation as it is. Open-ended requests get it with the sets of `_EXACT_ONLY`."""
_EXACT_ONLY = ("default", "local", "tiny")
_QUERY_ONLY = "{query}"
_WITHOUT = " without "
_STAGES = r" Work in this order:|^\d\. .*\n?"
PARTS: Mapping[str, tuple[tuple[Step, ...], str]] = {
    "step-limit": ((Step.ANSWER,), r"^- Use three short steps.*\n?| in at most three short steps"),
    "self-correction": ((Step.ANSWER,), r"^- Do not justify.*\n?"),
    "protocol": ((Step.VERIFY,), _STAGES),
    "self-check": ((Step.SOLVE,), r"^4\. Verify.*\n?"),
    "structure": ((Step.SOLVE, Step.VERIFY), _STAGES),
    "examples": (tuple(Step), ""),
}
"""Parts that an ablation can remove (SPEC 7.3): the steps, and the pattern that is removed there."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one step."""

    system: str
    user: str
    """Template of the last user turn: {query}; for the verifier also {proposal}, the final answer, or {draft}, the
    whole text that holds it."""
    examples: tuple[tuple[str, str], ...]
    """Worked examples: the user's message, and the agent's reply."""
    md5: str
    closing: str = ""
    """Template of a further user turn after the conversation; none if empty."""

    def messages(self, query: Query, proposal: str = "", draft: str = "") -> tuple[Message, ...]:
        """The conversation that asks an agent to do its step for this query.

        A template of {query} alone leaves the client's turns exactly as they are.
        """
        turns = [Message("system", self.system)] if self.system else []
        for user, reply in self.examples:
            turns += [Message("user", user), Message("assistant", reply)]
        own = list(query.messages)
        if self.user != _QUERY_ONLY:
            last = max((i for i, turn in enumerate(own) if turn.role == "user"), default=len(own) - 1)
            text = _fill(self.user, query.text, proposal, draft)
            own[last] = Message("user", text, own[last].images)
        turns += own
        if self.closing:
            turns.append(Message("user", _fill(self.closing, query.text, proposal, draft)))
        return tuple(turns)

    @property
    def asks_for_marker(self) -> bool:
        return "answer:" in f"{self.system}{self.user}{self.closing}".lower()

    @property
    def asks_for_judgment(self) -> bool:
        return "judgment" in f"{self.system}{self.user}{self.closing}".lower()


Prompts = Mapping[Step, Prompt]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of every step, for exact questions and for open-ended requests."""

    exact: Prompts
    open_ended: Prompts | None = None
    """None if open-ended requests get the same prompts."""

    def is_open_ended(self, query: Query) -> bool:
        """Whether a query gets the prompts for open-ended requests.

        Those prompts leave a conversation as it is, so they are also right where the client sets the task and the
        form of the reply: by tools, a response format, earlier turns, or a system message, which could contradict
        worked examples.
        """
        if self.open_ended is None:
            return False
        parameters = query.parameters
        roles = [turn.role for turn in query.messages]
        has_examples = any(prompt.examples for prompt in self.exact.values())
        set_by_client = parameters.tools or parameters.format is not None or roles.count("user") > 1
        return (
            bool(set_by_client or (has_examples and "system" in roles))
            or request_kind(query).kind is Kind.OPEN_ENDED
        )

    def choose(self, *, open_ended: bool) -> Prompts:
        """The prompts for open-ended requests, or those for exact questions."""
        return self.open_ended if open_ended and self.open_ended is not None else self.exact

    def steps(self) -> dict[str, str]:
        """The step of every prompt, by its MD5."""
        sets = (self.exact, self.choose(open_ended=True))
        return {prompt.md5: step.value for each in sets for step, prompt in each.items()}


def load_prompts(name: str) -> PromptSet:
    """Load a shipped set, or a folder; "NAME without PART" removes a part.

    A folder holds answer.toml, verify.toml and solve.toml, and can hold a folder `open` with the same three files
    for open-ended requests.

    >>> load_prompts("default").exact[Step.ANSWER].messages(Query("What is 2 + 2?"))[-1].text
    'What is 2 + 2?'
    >>> "three short steps" in load_prompts("paper without step-limit").exact[Step.ANSWER].system
    False
    """
    base, without, part = name.rpartition(_WITHOUT)
    if without:
        whole = load_prompts(base)
        return replace(whole, exact=_without_part(name, whole.exact, part))
    if name in SETS:
        shipped = resources.files("odar.agents.prompts")
        chat = _read_steps(shipped.joinpath(_CHAT), _CHAT) if name in _EXACT_ONLY else None
        return PromptSet(_read_steps(shipped.joinpath(name), name), chat)
    folder = user_path(name, setting="prompts")
    if not folder.is_dir():
        raise SettingsError(f"prompts = {name!r} is neither a folder nor one of: {', '.join(SETS)}")
    own = _read_steps(folder / "open", f"{name}/open") if (folder / "open").is_dir() else None
    return PromptSet(_read_steps(folder, name), own)


def _read_steps(folder: Any, label: str) -> Prompts:
    return {step: _read(folder.joinpath(f"{step}.toml"), f"{label}/{step}.toml") for step in Step}


def _without_part(name: str, prompts: Prompts, part: str) -> Prompts:
    if part not in PARTS:
        raise SettingsError(f"prompts = {name!r}: no part {part!r} (parts: {', '.join(PARTS)})")
    steps, pattern = PARTS[part]
    changed = dict(prompts)
    for step in steps:
        system = re.sub(pattern, "", prompts[step].system, flags=re.MULTILINE).strip()
        examples = prompts[step].examples if pattern else ()
        if (system, examples) != (prompts[step].system, prompts[step].examples):
            md5 = hashlib.md5(f"{prompts[step].md5} {part}".encode(), usedforsecurity=False).hexdigest()
            changed[step] = replace(prompts[step], system=system, examples=examples, md5=md5)
    if changed == prompts:
        raise SettingsError(f"prompts = {name!r}: these prompts have no {part} that could be left out")
    return changed


def prompt_steps(name: str) -> dict[str, str]:
    """The step of every prompt of this set and of the shipped ones, by its MD5."""
    return {md5: step for each in (*SETS, name) for md5, step in load_prompts(each).steps().items()}


def _read(file: Any, label: str) -> Prompt:
    try:
        raw = file.read_bytes()
        tree = tomllib.loads(raw.decode("utf-8"))
        user = tree["user"].strip()
        if "{query}" not in user:
            raise SettingsError(f"prompt file {label}: user must contain {{query}}")
        return Prompt(
            system=tree.get("system", "").strip(),
            user=user,
            closing=tree.get("closing", "").strip(),
            examples=tuple(
                (_fill(user, example["query"], example.get("proposal", ""), ""), example["reply"].strip())
                for example in tree.get("examples", ())
            ),
            md5=hashlib.md5(raw, usedforsecurity=False).hexdigest(),
        )
    except OSError as error:
        raise SettingsError(f"prompt file {label} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"prompt file {label} is not valid TOML: {error}") from None
    except (KeyError, AttributeError, TypeError) as error:
        raise SettingsError(f"prompt file {label} lacks a text for {error}") from None


def _fill(template: str, query: str, proposal: str, draft: str) -> str:
    """The template with these texts; braces within the texts stay."""
    values = {"{query}": query, "{proposal}": proposal, "{draft}": draft}
    return re.sub(r"\{(?:query|proposal|draft)\}", lambda match: values[match.group()], template)
