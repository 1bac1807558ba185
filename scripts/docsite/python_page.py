"""The reference of the Python API, from signatures and docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from typing import Any

import odar

EXTENSION_POINTS = (
    "odar.providers.base:Provider",
    "odar.providers.base:Request",
    "odar.providers.base:Sampling",
    "odar.providers.base:Reply",
    "odar.providers.base:Completion",
    "odar.types:Token",
    "odar.types:Usage",
    "odar.types:Estimate",
    "odar.types:Energy",
    "odar.types:Verdict",
    "odar.types:Decision",
    "odar.policy.fusion_rules:Ballot",
    "odar.difficulty.base:Estimator",
    "odar.observer:Observer",
    "odar.registry:Registry",
)
_HEAD = """# Python

The public names of `odar`, then what a plug-in meets ([how to write one](../guides/extend.md)). Importing `odar` loads nothing
heavy: each name is fetched when it is first used.

"""
_SECTION = re.compile(r"(?m)^(Args|Parameters|Attributes|Raises|Returns):\n")


def python_page() -> str:
    """The page."""
    public = [_entry(f"odar.{name}", getattr(odar, name)) for name in odar.__all__]
    others = [_entry(place.replace(":", "."), _load(place)) for place in EXTENSION_POINTS]
    return _HEAD + "## Public names\n\n" + "\n".join(public) + "\n## For plug-ins\n\n" + "\n".join(others)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _entry(name: str, thing: Any) -> str:
    """One name: its signature, docstring, fields and methods."""
    lines = [f"### {name}", "", "```py", _signature(name.rpartition(".")[2], thing), "```", ""]
    lines += [_prose(inspect.getdoc(thing) or ""), ""]
    if inspect.isclass(thing):
        lines += [f"- `{each}`: {words}" for each, words in _field_docs(thing)]
        lines += [_member(each, value) for each, value in _members(thing)]
    return "\n".join(lines).rstrip() + "\n"


def _field_docs(thing: type) -> list[tuple[str, str]]:
    """Fields that are followed by a sentence of their own."""
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(body, ast.ClassDef)
    return [
        (field.target.id, " ".join(words.value.value.split()))
        for field, words in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(words, ast.Expr)
        and isinstance(words.value, ast.Constant)
        and isinstance(words.value.value, str)
    ]


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return f"class {name}({thing.__bases__[0].__name__})"
    if inspect.isclass(thing) and any(base.__name__ == "StrEnum" for base in thing.__mro__):
        return "\n".join([f"class {name}(StrEnum):", *(f'    {each.name} = "{each.value}"' for each in thing)])
    head = "class" if inspect.isclass(thing) else "async def" if inspect.iscoroutinefunction(thing) else "def"
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{head} {name}"
    if inspect.isclass(thing) and getattr(thing, "_is_protocol", False):
        return f"{head} {name}(Protocol)"
    return f"{head} {_folded(name, signature, bool(inspect.isclass(thing)))}"


def _folded(name: str, signature: inspect.Signature, is_class: bool) -> str:
    """A signature that fits the page: a parameter a line where it is long."""
    parts, seen_star = [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not seen_star:
            parts.append("*")
        seen_star |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(_shortened(str(parameter)))
    returns = (
        "" if is_class or signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    )
    flat = f"{name}({', '.join(parts)}){returns}"
    return flat if len(flat) <= 90 else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _shortened(parameter: str) -> str:
    """The signature without defaults that are implementation details."""
    name, _, rest = parameter.partition(": ")
    if rest.startswith("'"):  # annotations are kept as written: without the quotes
        annotation, _, default = rest[1:].partition("'")
        parameter = f"{name}: {annotation}{default}"
    parameter = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", parameter)
    parameter = re.sub(r"<factory>|<function .* at 0x[0-9a-f]+>", "…", parameter)
    parameter = re.sub(r" = [A-Z]\w+\(.*\)$", " = …", parameter)
    return re.sub(r" = \(<Path.*\)$", " = (simple, medium, hard)", parameter)


def _members(thing: type) -> list[tuple[str, Any]]:
    """Public methods and properties that the class itself defines and describes."""
    own = [(name, value) for name, value in vars(thing).items() if not name.startswith("_")]
    return [(n, v) for n, v in own if (inspect.isfunction(v) or isinstance(v, property)) and inspect.getdoc(v)]


def _member(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"- `{name}`: {_first(value.fget)}"
    head = "await " if inspect.iscoroutinefunction(value) else ""
    text = _first(value)
    body = _prose(inspect.getdoc(value) or "") if name == "aask" else ""
    call = (
        re.sub(r"\s+", " ", _folded(name, inspect.signature(value), False)).replace("( ", "(").replace(", )", ")")
    )
    call = call if len(call) < 120 else f"{name}(…)"
    return f"- `{head}{call}`: {text}" + (
        ("\n\n" + textwrap.indent(body.split("\n", 1)[1].strip(), "    ") + "\n") if body else ""
    )


def _first(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _prose(doc: str) -> str:
    """A docstring as Markdown: sections become lists, examples become code."""
    pieces = _SECTION.split(doc)
    text = _code(pieces[0])
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        section, _, rest = _outdent(body)
        items = re.findall(r"(?ms)^ {4}(\*{0,2}[\w, ]+): (.*?)(?=^ {4}\*{0,2}[\w, ]+: |\Z)", section)
        text += f"\n{title}:\n\n" + "".join(f"- `{name}`: {' '.join(words.split())}\n" for name, words in items)
        text += "\n" + _code(rest)
    return text.strip()


def _outdent(body: str) -> tuple[str, str, str]:
    """The indented part of a section, and what follows it."""
    match = re.search(r"(?m)^\S", body)
    return (body, "", "") if match is None else (body[: match.start()], "", body[match.start() :])


def _code(text: str) -> str:
    """Doctests and indented code, fenced. pytest runs doctests where they stand, in src."""
    text = re.sub(r"(?ms)^(>>> .*?)(?=^\s*$|\Z)", lambda m: f"```pycon\n{m[1].rstrip()}\n```\n", text)
    return re.sub(r"(?m)(?:^ {4}.*\n?)+", lambda m: f"```text\n{textwrap.dedent(m[0]).rstrip()}\n```\n", text)
