"""Who may look at the operator: the rules alone."""

from __future__ import annotations

from typing import Any

import pytest

from kopf._insight.endpoint.protection import (
    ConsoleError,
    Inquiry,
    Protection,
    is_loopback,
    parse_host,
    protect,
)
from kopf._serving.endpoints import READING, Endpoint

TOKEN = "0123456789abcdef"
LOCAL = Endpoint("127.0.0.1", 8090, "/")
OPEN = Endpoint("0.0.0.0", 8090, "/")


def get_status(protection: Protection, methods: frozenset[str] = READING, **kwargs: Any) -> int | None:
    refusal = protection.find_refusal(Inquiry(**{"method": "GET", "hosts": ["127.0.0.1:8090"], **kwargs}), methods)
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8090",
        "http://localhost:8090/",
        "http://[::1]:8090",
        "http://127.1.2.3:0",
        "http://LOCALHOST:1",
    ],
)
def test_loopbacks_need_no_token(url: str) -> None:
    endpoint, protection = protect(url, None)
    assert endpoint.path == "/"
    assert get_status(protection) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://0.0.0.0:8090",
        "http://:8090",
        "http://[::]:8090",
        "http://10.0.0.1:8090",
        "http://example.com:8090",
        "http://localhost.example.com:8090",
    ],
)
def test_all_others_need_a_token(url: str) -> None:
    with pytest.raises(ConsoleError, match=r"open to everybody.*KOPF_CONSOLE_TOKEN.*http://127.0.0.1:8090"):
        protect(url, None)
    protect(url, TOKEN)


@pytest.mark.parametrize("token", ["", "short", "with spaces in the token", "ключ-ключ-ключ-ключ", "0123456789abcde\n"])
def test_tokens_are_not_guessable(token: str) -> None:
    with pytest.raises(ConsoleError, match="16 or more"):
        protect("http://127.0.0.1:8090", token)


@pytest.mark.parametrize("url", ["https://127.0.0.1:8090", "127.0.0.1:8090", "http://127.0.0.1:8090/console"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="The console endpoint"):
        protect(url, None)


@pytest.mark.parametrize(
    "hosts",
    [
        ["127.0.0.1:8090"],
        ["localhost:8090"],
        ["LocalHost"],
        ["[::1]:8090"],
        ["localhost:12345"],
        ["127.0.0.2"],
    ],
)
def test_loopback_names_are_served(hosts: list[str]) -> None:
    assert get_status(Protection(LOCAL, None), hosts=hosts) is None


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["evil.example.com:8090"], 403),
        (["localhost.evil.example.com"], 403),
        (["127.0.0.1.nip.io"], 403),
        (["10.0.0.1:8090"], 403),
        (["2130706433"], 403),
        (["0.0.0.0:8090"], 403),
        ([], 400),
        ([""], 400),
        (["localhost", "evil.example.com"], 400),
        (["evil@localhost"], 400),
        (["a b"], 400),
        (["localhost:8090/path"], 400),
        (["[::1"], 400),
        (["localhost:"], 400),
    ],
)
def test_other_names_are_not(hosts: list[str], status: int) -> None:
    assert get_status(Protection(LOCAL, None), hosts=hosts) == status


def test_the_name_that_it_is_bound_to_is_served() -> None:
    assert get_status(Protection(Endpoint("my.host", 80, "/"), None), hosts=["My.Host:80"]) is None


def test_with_a_token_any_name_is_served() -> None:
    for host in ["operator.ns.svc:8090", "10.0.0.1:8090", "evil.example.com"]:
        assert get_status(Protection(OPEN, TOKEN), hosts=[host]) == 401
        assert get_status(Protection(OPEN, TOKEN), hosts=[host], authorization=f"Bearer {TOKEN}") is None


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer é",
        "Bearer \udcff",
    ],
)
def test_wrong_tokens(authorization: str | None) -> None:
    assert get_status(Protection(LOCAL, TOKEN), authorization=authorization) == 401


def test_right_tokens() -> None:
    assert get_status(Protection(LOCAL, TOKEN), authorization=f"Bearer {TOKEN}") is None
    assert get_status(Protection(LOCAL, TOKEN), authorization=f"bearer  {TOKEN} ") is None


def test_tokens_are_exchanged_for_cookies() -> None:
    protection = Protection(OPEN, TOKEN)
    inquiry = Inquiry(method="GET", hosts=["localhost:8090"], query_token=TOKEN)
    assert protection.find_refusal(inquiry) is not None  # it is to be exchanged, and not to stay in the address
    cookie = protection.exchange(inquiry)
    assert cookie is not None
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert TOKEN not in cookie
    pair = cookie.split(";")[0]
    assert pair.startswith("kopf-console-8090=")
    assert get_status(protection, hosts=["localhost:8090"], cookies=[pair]) is None
    assert get_status(protection, hosts=["localhost:8090"], cookies=[f'a="b;{pair}; c=d']) is None
    assert get_status(protection, hosts=["localhost:8090"], cookies=["x=y", pair]) is None
    assert get_status(protection, hosts=["localhost:9999"], cookies=[pair]) == 401  # it is of another console
    assert get_status(Protection(OPEN, TOKEN + "x"), hosts=["localhost:8090"], cookies=[pair]) == 401
    assert get_status(protection, hosts=["localhost:8090"], cookies=[pair[:-1]]) == 401


def test_wrong_tokens_are_not_exchanged() -> None:
    for token in (None, "", TOKEN[:-1], TOKEN + "x"):
        inquiry = Inquiry(method="GET", hosts=["localhost:8090"], query_token=token)
        assert Protection(OPEN, TOKEN).exchange(inquiry) is None
    assert Protection(LOCAL, None).exchange(Inquiry(method="GET", hosts=["localhost"], query_token="")) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get"])
def test_it_is_read_only(method: str) -> None:
    assert get_status(Protection(LOCAL, None), method=method) == 405


@pytest.mark.parametrize(
    ("site", "is_navigation", "status"),
    [
        ("same-origin", False, None),
        ("none", True, None),
        (None, False, None),
        ("cross-site", False, 403),
        ("same-site", False, 403),
        ("cross-site", True, None),
    ],
)
def test_pages_of_other_sites(site: str | None, is_navigation: bool, status: int | None) -> None:
    assert get_status(Protection(LOCAL, None), site=site, is_navigation=is_navigation) == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"content_type": "application/json"}, None),
        ({"content_type": "Application/JSON; charset=utf-8", "origin": "http://127.0.0.1:8090"}, None),
        ({"content_type": "application/json", "origin": "http://evil.example.com"}, 403),
        ({"content_type": "application/json", "origin": "null"}, 403),
        ({"content_type": "application/json", "site": "cross-site", "is_navigation": True}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
    ],
)
def test_changes_where_they_are_possible(fields: dict[str, Any], status: int | None) -> None:
    assert get_status(Protection(LOCAL, None), frozenset({"POST"}), method="POST", **fields) == status


def test_changes_need_the_token_too() -> None:
    fields = {"method": "POST", "content_type": "application/json"}
    assert get_status(Protection(LOCAL, TOKEN), frozenset({"POST"}), **fields) == 401
    assert get_status(Protection(LOCAL, TOKEN), frozenset({"POST"}), **fields, authorization=f"Bearer {TOKEN}") is None


def test_names() -> None:
    assert parse_host("[2001:DB8::1]:80") == ("2001:db8::1", 80)
    assert is_loopback("localhost.")
    assert not is_loopback("")
    assert not is_loopback("notlocalhost")
