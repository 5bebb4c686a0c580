"""Who may ask: keys, hosts, origins; every route is looked at."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serve.running import Running, running
from tetrad.serve.keys import Hosts, Keys, Origins
from tetrad.serve.routes import all_routes

PUBLIC = {("GET", "/health"), ("GET", "/v1/health"), ("GET", "/"), ("GET", "/page/")}
SITE = "https://friend.example"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(keys=Keys(["one", "two"]), origins=Origins([SITE])) as found:
        yield found


def test_only_health_and_the_page_are_public() -> None:
    assert {(r.method, r.path) for r in all_routes() if r.is_public} == PUBLIC


def test_every_route_wants_a_key(guarded: Running) -> None:
    with guarded.client() as client:
        for route in all_routes():
            path = route.path + ("x" if route.path.endswith("/") and len(route.path) > 1 else "")
            found = client.request(route.method, path)
            wanted = route.is_public
            assert (found.status_code != 401) == wanted, (route.method, route.path)


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/health/", "/%2e%2e/health"])
def test_what_is_not_there_wants_a_key_as_well(guarded: Running, path: str) -> None:
    with guarded.client() as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"x-api-key": "one"}).status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer one"}, 200),
        ({"authorization": "bearer two"}, 200),
        ({"x-api-key": "two"}, 200),
        ({"authorization": "Bearer three"}, 401),
        ({"authorization": "one"}, 401),
        ({"authorization": "Basic one"}, 401),
        ({"authorization": "Bearer onex"}, 401),
        ({}, 401),
    ],
    ids=str,
)
def test_keys(guarded: Running, headers: dict[str, str], status: int) -> None:
    with guarded.client() as client:
        found = client.get("/v1/models", headers=headers)
    assert found.status_code == status
    if status == 401:
        assert found.json()["error"]["code"] == "invalid_api_key"
        assert found.headers["www-authenticate"] == "Bearer"


def test_a_body_is_not_read_before_the_key_is_seen(guarded: Running) -> None:
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    )
    assert guarded.raw(head).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("LOCALHOST:1", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("", False),
        ("localhost:8080@evil.example", False),
    ],
)
def test_hosts(server: Running, host: str, allowed: bool) -> None:
    with server.client() as client:
        found = client.get("/health", headers={"host": host})
    assert found.status_code == (200 if allowed else 403)


def test_a_server_for_all_of_the_machine_is_asked_by_address() -> None:
    hosts = Hosts("0.0.0.0", ["box.example"])
    for host in ("10.0.0.1:80", "[fe80::1]:80", "localhost", "Box.Example"):
        hosts.check({"host": host})
    with pytest.raises(Exception, match="not called"):
        hosts.check({"host": "evil.example"})
    Hosts("127.0.0.1", ["*"]).check({"host": "anything"})


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
def test_pages_of_other_sites_may_not_ask(server: Running, origin: str) -> None:
    with server.client() as client:
        found = client.post("/tokenize", json={"content": "a"}, headers={"origin": origin})
        assert found.status_code == 403
        assert "access-control-allow-origin" not in found.headers
        asked = client.options("/tokenize", headers={"origin": origin})
        assert asked.status_code == 403


def test_the_own_page_may_ask(server: Running) -> None:
    with server.client() as client:
        found = client.post("/tokenize", json={"content": "a"}, headers={"origin": server.url})
    assert found.status_code == 200


def test_sites_that_are_named_may_ask(guarded: Running) -> None:
    with guarded.client() as client:
        asked = client.options(
            "/v1/models",
            headers={"origin": SITE, "access-control-request-method": "GET"},
        )
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == SITE
        assert "authorization" in asked.headers["access-control-allow-headers"]
        found = client.get("/v1/models", headers={"origin": SITE, "x-api-key": "one"})
        assert found.headers["access-control-allow-origin"] == SITE


def test_methods(client: httpx.Client) -> None:
    found = client.get("/v1/chat/completions")
    assert found.status_code == 405 and found.headers["allow"] == "POST"
    assert client.delete("/v1/models").status_code == 405
    assert client.request("TRACE", "/health").status_code == 405


def test_the_log_has_ids_and_neither_prompts_nor_keys(guarded: Running) -> None:
    body = {"messages": [{"role": "user", "content": "secret-\x1b[2J-prompt"}], "max_tokens": 1}
    with guarded.client(headers={"x-api-key": "one"}) as client:
        found = client.post("/v1/chat/completions", json=body)
        client.get("/nothing-%1b[2J")
    log = guarded.log.getvalue()
    assert f"request={found.headers['x-request-id']}" in log
    assert "secret" not in log and "one " not in log and "\x1b" not in log


def test_headers_that_keep_answers_harmless(client: httpx.Client) -> None:
    found = client.get("/v1/models")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    again = client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    assert client.get("/page/../app.py").status_code == 404
    assert client.get("/page/%2e%2e/app.py").status_code == 404
