"""Every code block of README and docs is run, or parsed if it is marked as not run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docsite.markdown import ROOT, Block, Page, pages

from odar.cli.main import cli
from odar.cli.options import parse_sets
from odar.config import load_settings
from odar.errors import OdarError
from support.page_session import PageSession, page_session, repository_link
from support.page_upstream import page_upstream

PAGES = [page for page in pages() if "```" in page.text]
SHELL = ("bash", "console")
READ_ONLY = ("text", "json", "jsonl", "toml", "yaml", "js", "ts")
GENERATED = ("py", "pycon")
"""Signatures and doctests of generated pages; pytest runs the doctests where they stand, in src."""
PLACEHOLDER = re.compile(r"(?<=\.model=)[A-Z]+$")
"""A model that the reader puts in, as in `--set slow.model=NAME`."""
NAMES = {page: str(page.path.relative_to(ROOT)) for page in pages()}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an `odar` command that starts quickly."""
    folder = tmp_path_factory.mktemp("bin")
    program = Path(__file__).parents[1] / "support" / "odar_zygote.py"
    command = [sys.executable, "-P", str(program), str(folder / "socket"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield folder
        process.kill()


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with page_upstream() as origin:
        yield origin


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_the_blocks_of_a_page_run_as_shown(page, commands, upstream, tmp_path):
    with page_session(page, tmp_path, commands, upstream) as session:
        repository_link(tmp_path, "docs", "scripts")
        for block in page.blocks:
            do(block, session)


def do(block: Block, session: PageSession) -> None:
    if block.language in (*READ_ONLY, *GENERATED):
        read(block, session)
    elif "not run" in block.remarks:
        check_unrun(block)
    elif block.language == "python":
        session.write(block) if block.title else session.python(block)
    elif block.remarks.get("run") == "background":
        session.serve(block)
    else:
        session.shell(block)


def read(block: Block, session: PageSession) -> None:
    """Check that data and settings are valid; write a titled block to its file."""
    if block.language == "jsonl":
        assert all(json.loads(line) for line in block.text.splitlines()), block.where
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
        if block.title != "pyproject.toml" and "not run" not in block.remarks:  # settings of another program
            check_settings(block, session)
    if block.title:
        session.write(block)


def check_settings(block: Block, session: PageSession) -> None:
    file = session.folder / "shown.toml"
    file.write_text(session.settings(block.text))
    named = {"fast", "slow"} & set(tomllib.loads(block.text)) or "profile" in block.text
    calibration = {} if "calibration" not in block.text else {"calibration": ""}
    load_settings(None if named else "custom", config=file, environ={}, **needed(named), **calibration)


def needed(named: object) -> dict[str, str]:
    """Return models for a fragment of a settings file that names none."""
    return {} if named else {"fast__model": "gpt-5.1", "slow__model": "gpt-5.1"}


def check_unrun(block: Block) -> None:
    """Check a block that is not run: shell and Python parse, and every odar command exists."""
    if block.language == "python":
        compile(block.text, block.where, "exec")
        return
    parsed = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True)
    assert parsed.returncode == 0, f"{block.where}\n{parsed.stderr}"
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if "odar" in words[:1]:
            check_command(words[1:], block.where)


def check_command(words: list[str], where: str) -> None:
    """Check that the command, its options and the settings of --set exist."""
    command, context = cli, click.Context(cli, **cli.context_settings)  # click keeps what it made of them
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{where}: no command {words[0]!r}"
        command, context, words = found, click.Context(found, parent=context), words[1:]
    ends = [index for index, word in enumerate(words) if word in ("|", ">", "<", "&&", ";", "2>&1")]
    try:
        values, _, _ = command.make_parser(context).parse_args(words[: min(ends, default=None)])
    except click.UsageError as error:
        raise AssertionError(f"{where}: {error.format_message()}") from None
    if sets := values.get("sets"):
        named = (PLACEHOLDER.sub("smollm2-135m", value) for value in sets)
        load_settings("tiny", environ={}, **parse_sets(tuple(named)))


@pytest.mark.parametrize("page", NAMES, ids=NAMES.get)
def test_inline_commands_exist(page):
    """The specification also names commands that are to be built."""
    for code, line in page.code if NAMES[page] != "docs/specification.md" else ():
        if re.match(r"odar [a-z]", code) and "…" not in code:
            words = shlex.split(code)[1:]
            value = ["x"] if words[-1].startswith("--") else []  # an option may be named without a value
            check_command([*words, *value], f"{NAMES[page]}:{line}")


@pytest.mark.parametrize("page", NAMES, ids=NAMES.get)
def test_every_block_has_a_language(page):
    for block in page.blocks:
        assert block.fenced, f"{block.where}: an indented block is not run; fence it and name its language"
        languages = (
            *READ_ONLY,
            *SHELL,
            "python",
            *(GENERATED if "Made by `make docs-reference`" in page.text else ()),
        )
        assert block.language in languages, f"{block.where}: {block.language!r} is not known here"
        if reason := block.remarks.get("not run"):
            assert len(reason) > 10, f"{block.where}: say why"


def follow(text: str, folder: Path, commands: Path, upstream: str) -> None:
    """Run a page with this text."""
    (folder / "page.md").write_text(text)
    page = Page(folder / "page.md")
    with page_session(page, folder, commands, upstream) as session:
        for block in page.blocks:
            do(block, session)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```bash\nfalse | true\n```", "exit code 1"),
        ("```console\n$ echo 8\n9\n```", "printed:\n8"),
        ("```python\nassert False, 'no'\n```", "AssertionError: no"),
    ],
)
def test_a_wrong_page_fails(text, complaint, tmp_path, commands, upstream):
    with pytest.raises((AssertionError, SyntaxError, ValueError, OdarError)) as caught:
        follow(text, tmp_path, commands, upstream)
    assert complaint in str(caught.value)
