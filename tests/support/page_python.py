"""The Python of one page: reads blocks as JSON lines, runs them in one namespace, answers with what they printed.

A line is `{"code": …, "file": …, "line": …}`; the answer is `{"out": …, "error": … or null}`. `await` is allowed at
the top level, as it is in a notebook.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import traceback
from typing import Any


def run(code: str, file: str, line: int, namespace: dict[str, Any]) -> None:
    """Run one block; its lines are numbered as in the page."""
    tree = ast.increment_lineno(ast.parse(code, file), line)
    compiled = compile(tree, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, namespace)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def main() -> None:
    """One namespace for the page, called `page` so that its classes can be pickled and found."""
    namespace: dict[str, Any] = {"__name__": "page"}
    answers = sys.stdout
    for line in sys.stdin:
        block, out, error = json.loads(line), io.StringIO(), None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                run(block["code"], block["file"], block["line"], namespace)
            except BaseException:
                error = traceback.format_exc()
        answers.write(json.dumps({"out": out.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
