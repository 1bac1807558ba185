"""lm-evaluation-harness with the gateway; LM_EVAL names its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from odar.serving.protocols.chat import read_chat

SCRIPT = Path(__file__).parents[2] / "qa" / "clients" / "check_lm_eval.sh"
LM_EVAL = shutil.which(os.environ.get("LM_EVAL", "lm_eval"))


def test_every_field_of_the_lm_eval_client_is_accepted():
    """The body that lm_eval 0.4.13 sends for local-chat-completions."""
    body = {
        "messages": [{"role": "user", "content": "What is 2 + 2?"}],
        "model": "odar",
        "max_tokens": 256,
        "temperature": 0,
        "stop": ["\n\n"],
        "seed": 1234,
    }
    ask = read_chat(body)
    parameters = ask.query.parameters
    assert (parameters.max_tokens, parameters.temperature, parameters.stop, parameters.seed) == (
        256,
        0,
        ("\n\n",),
        1234,
    )
    assert parameters.extra == {}
    assert read_chat({**body, "stop": []}).query.parameters.stop == ()


@pytest.mark.skipif(
    LM_EVAL is None, reason="lm_eval is not installed: see qa/clients/check_lm_eval.sh, set LM_EVAL"
)
def test_a_local_task_gets_the_expected_score():
    done = subprocess.run(
        [SCRIPT], env={**os.environ, "LM_EVAL": LM_EVAL}, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    assert "exact match over 4 questions: 0.5" in done.stdout
