"""`odar ask`, Python and the gateway send the same prompts and return the same text."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

import odar as package
from odar.serving.app import create_app
from support.live_gateway import MemoryStore
from support.scripted import completion

REPLIES = {
    "Write a Python function that merges two lists.": "```python\ndef merge(a, b):\n    return a + b\n```\n\nIt adds.",
    "Write a haiku about rain.": "Rain on the tin roof\nthe gutter keeps a rhythm\nnobody wrote down",
    "Translate to French: good morning": "Bonjour",
    "Who wrote The Master and Margarita, and when did it appear?": "Mikhail Bulgakov; it appeared in 1967.\n"
    "Answer: Mikhail Bulgakov, 1967",
    "What is 17 + 25?": "17 + 25 = 42.\nAnswer: 42",
    "hi": "Hello! How can I help?",
}
FINAL = {"What is 17 + 25?": "42", "Translate to French: good morning": "Bonjour"}


@pytest.mark.parametrize("prompts", ["default", "local", "tiny"])
@pytest.mark.parametrize("path", ["simple", "medium", "hard"])
def test_the_whole_text_comes_back_from_every_side(odar, provider, tmp_path, prompts, path):
    toml = (tmp_path / "odar.toml").read_text()
    (tmp_path / "odar.toml").write_text(toml.replace('prompts = "paper"', f'prompts = "{prompts}"'))
    for question, reply in REPLIES.items():
        provider.requests.clear()
        provider.script = lambda request, index, text=reply: [completion(text, -0.2)] * request.n
        command = odar("ask", "--path", path, question).out
        short = odar("ask", "--path", path, "--short", question).out
        body = json.loads(odar("ask", "--path", path, "--json", question).out)
        settings = package.load_settings()
        with package.Odar(settings) as engine:
            answer = engine.ask(question, path=path)
        with TestClient(
            create_app(settings, store=MemoryStore()), "http://127.0.0.1:8088", client=("127.0.0.1", 9)
        ) as client:
            request = {"model": "odar", "messages": [{"role": "user", "content": question}], "odar": {"path": path}}
            served = client.post("/v1/chat/completions", json=request).json()["choices"][0]["message"]["content"]
        assert served == str(answer) == answer.text == body["answer"]["text"] == reply
        assert command == f"{reply}\n"
        assert short == f"{answer.final}\n" == f"{body['answer']['final']}\n"
        assert FINAL.get(question, answer.final) == answer.final
        sent = [[message.text for message in each.messages] for each in provider.requests]
        each = len(sent) // 5
        whole = sent[:each] + sent[2 * each :]  # without those of --short, which always ask for a marked answer
        assert whole == sent[:each] * 4
        assert path == "simple" or sent[each : 2 * each] == sent[:each]
