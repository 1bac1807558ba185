from __future__ import annotations

import pytest

from odar.serving.protocols.image_urls import is_public
from support.gateway import turn

PUBLIC = [
    "https://example.com/a.png",
    "http://example.com:8080/a",
    "https://EXAMPLE.com./a.png",
    "https://user:pw@example.com/a",
    "http://8.8.8.8/a.png",
    "http://[2606:4700:4700::1111]/a",
    "https://bücher.example.com/a",
]
INNER = [
    "http://localhost/a",
    "http://LOCALHOST.:80/",
    "http://a.localhost/",
    "http://intranet/a.png",
    "http://vllm-fast:8000/metrics",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://printer.local/",
    "http://odar.default.svc/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://0.0.0.0:8000/",
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://224.0.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[2002:7f00:1::]/",
    "http://[fd00::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[::]/",
    "http://999.999.999.999/",
    "http:///path",
    "http://",
    "ftp://example.com/a.png",
    "file:///etc/passwd",
    "http://exa mple.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com\t/",
    "http://example.com/\x7f",
    "http://[::1",
]


@pytest.mark.parametrize("url", PUBLIC)
def test_internet_addresses_are_public(url):
    assert is_public(url)


@pytest.mark.parametrize("url", INNER)
def test_private_addresses_are_not_public(url):
    assert not is_public(url)


def chat(*parts):
    return {"model": "odar-simple", "messages": [{"role": "user", "content": list(parts)}]}


def picture(url):
    return {"type": "image_url", "image_url": {"url": url}}


ASKED = {"type": "text", "text": "See http://127.0.0.1/ and tell me."}
METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.parametrize(
    "part",
    [
        picture(METADATA),
        {"type": "video_url", "video_url": {"url": METADATA}},
        {"type": "audio_url", "audio_url": {"url": METADATA}},
        {"type": "file", "file": {"inner": [{"file_url": METADATA}]}},
        {"type": "video_url", "video_url": {"url": "FILE:///etc/passwd"}},
    ],
    ids=["image", "video", "audio", "file", "scheme"],
)
async def test_private_image_urls_are_rejected_by_chat(live, up, part):
    status, _, body = await live.post("/v1/chat/completions", chat(ASKED, part))
    assert (status, body["error"]["param"]) == (400, "image_url")
    assert "not public" in body["error"]["message"]
    assert METADATA not in body["error"]["message"]
    assert up.requests == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/messages",
            {"max_tokens": 9, "content": [{"type": "image", "source": {"type": "url", "url": METADATA}}]},
        ),
        ("/v1/responses", {"content": [{"type": "input_image", "image_url": METADATA}]}),
    ],
)
async def test_private_image_urls_are_rejected_by_the_other_protocols(live, up, path, body):
    turns = [{"role": "user", "content": body.pop("content")}]
    name = "input" if path.endswith("responses") else "messages"
    status, _, answer = await live.post(path, {"model": "odar-simple", name: turns, **body})
    assert status == 400, answer
    assert up.requests == []


async def test_public_image_urls_and_urls_in_text_are_accepted(live, up):
    status, _, _ = await live.post("/v1/chat/completions", chat(ASKED, picture("https://example.com/cat.png")))
    assert status == 200
    sent = up.requests[0].json["messages"][-1]["content"]
    assert {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}} in sent


@pytest.mark.parametrize(("allowed", "status"), [("any", 200), ("none", 400), ("public", 400)])
async def test_the_setting_can_allow_private_addresses(start, up, allowed, status):
    live = await start(gateway__image_urls=allowed)
    got, _, _ = await live.post("/v1/chat/completions", chat(picture("http://192.168.0.7/cat.png")))
    assert got == status


async def test_the_setting_none_allows_only_inline_images(start, up):
    live = await start(gateway__image_urls="none")
    got, _, body = await live.post("/v1/chat/completions", chat(picture("https://example.com/cat.png")))
    assert (got, "send data:image" in body["error"]["message"]) == (400, True)
    got, _, _ = await live.post("/v1/chat/completions", chat(picture("data:image/png;base64,iVBORw0KGgo=")))
    assert got == 200
    got, _, _ = await live.post("/v1/chat/completions", {"model": "odar-simple", "messages": turn()})
    assert got == 200
