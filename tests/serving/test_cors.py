"""Web pages that may call the gateway from a browser."""

from __future__ import annotations

ORIGIN = "http://localhost:5173"
PREFLIGHT = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization",
}
BODY = {"model": "nobody/knows", "messages": [{"role": "user", "content": "Hi"}]}


async def test_an_allowed_origin_can_read_answers_and_errors(start):
    live = await start(gateway__cors_origins=[ORIGIN])
    url = live.url + "/v1/chat/completions"
    async with live.http.options(url, headers=PREFLIGHT) as reply:
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, ORIGIN)
        assert "authorization" in reply.headers["access-control-allow-headers"]
    status, headers, _ = await live.post("/v1/chat/completions", BODY, headers={"origin": ORIGIN})
    assert (status, headers["access-control-allow-origin"]) == (404, ORIGIN)


async def test_another_origin_gets_no_cors_headers(start):
    live = await start(gateway__cors_origins=[ORIGIN])
    async with live.http.options(
        live.url + "/v1/models", headers=PREFLIGHT | {"origin": "http://localhost:1"}
    ) as reply:
        assert reply.status == 400
        assert "access-control-allow-origin" not in reply.headers


async def test_without_the_setting_there_are_no_cors_headers(live):
    status, headers, _ = await live.post("/v1/chat/completions", BODY, headers={"origin": ORIGIN})
    assert status == 404
    assert "access-control-allow-origin" not in headers
