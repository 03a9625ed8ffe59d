"""
Formats of texts in schemas: accepted and refused as by the API server, with its messages.

Where Go reads more or less than Python does, it is what Go does: see ``k8s.io/kube-openapi/pkg/validation/strfmt``.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from kopf_cluster import LocalCluster
from kopf_cluster.kinds.schemas import parse, validate
from kopf_cluster.kinds.string_formats import find_check
from tests.cluster.conftest import KEXES, Client, causes, make_definition, make_kex

FORMATS: dict[str, tuple[list[str], list[str]]] = {
    "date-time": (
        [
            *("2026-01-01T00:00:00Z", "2026-12-31t23:59:59.123456789z", "2024-02-29T12:30:45+05:30"),
            *("0000-02-29T00:00:00Z", "2026-01-01T00:00:00-99:99", "2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00x5Z"),
            "2026-01-01T00:00:00Zt",
        ],
        [
            *("", "x", "now", "2026-01-01", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00Z"),
            *("2026-01-01T00:00:00+0530", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T23:59:60Z"),
            *("2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-1-1T00:00:00Z", "20260101T000000Z"),
            *("2026-01-01T00:00:00.Z", "2026-01-01T00:00:00Z\n", " 2026-01-01T00:00:00Z", "٢٠٢٦-01-01T00:00:00Z"),
            *("2026-W01-1T00:00:00Z", "2026-01-01T00:00:00Z+01:00"),
        ],
    ),
    "date": (
        ["2026-01-01", "2024-02-29", "0000-02-29", "9999-12-31"],
        [
            *("", "2026-02-29", "2026-00-01", "2026-01-00", "2026-1-1", "20260101", "2026-W01-1", "26-01-01"),
            *("2026-01-01T00:00:00Z", "2026-01-01\n", " 2026-01-01", "+2026-01-01", "12026-01-01", "٢٠٢٦-01-01"),
        ],
    ),
    "duration": (
        [
            *("0", "-0", "1h30m", "1.5h", ".5s", "1.s", "-1h", "+5ms", "22 ns", "5µs", "5μs", "1h1h"),
            *("3 weeks", "1 day", "2 Hours", "10 minutes 5 sec", "5wk", "1d", "every 5s or so", "5 parsecs 3 days"),
            *("9223372036854775807h", "9999999h", "5 secundi", "P1D"),
        ],
        ["", "5", "h", "1.5", "P1", "5 parsecs", "-", "five days", "9223372036854775808h", "1 2", "1.5 x", "P"],
    ),
    "uuid": (
        [
            *("6fa459ea-ee8a-3ca4-894e-db77e160355e", "6FA459EA-EE8A-3CA4-894E-DB77E160355E"),
            *("6fa459eaee8a3ca4894edb77e160355e", "6fa459eaee8a-3ca4894e-db77e160355e"),
        ],
        [
            *("", "x", "{6fa459ea-ee8a-3ca4-894e-db77e160355e}", "urn:uuid:6fa459ea-ee8a-3ca4-894e-db77e160355e"),
            *("6fa459ea-ee8a-3ca4-894e-db77e160355", "gfa459ea-ee8a-3ca4-894e-db77e160355e"),
            "6fa459ea--ee8a-3ca4-894e-db77e160355e",
        ],
    ),
    "uuid3": (["6fa459ea-ee8a-3ca4-094e-db77e160355e"], ["6fa459ea-ee8a-4ca4-894e-db77e160355e"]),
    "uuid4": (
        ["6fa459ea-ee8a-4ca4-894e-db77e160355e", "6FA459EA-EE8A-4CA4-B94E-DB77E160355E"],
        ["6fa459ea-ee8a-3ca4-894e-db77e160355e", "6fa459ea-ee8a-4ca4-794e-db77e160355e"],
    ),
    "uuid5": (["6fa459ea-ee8a-5ca4-a94e-db77e160355e"], ["6fa459ea-ee8a-5ca4-c94e-db77e160355e"]),
    "byte": (
        ["eHg=", "eA==", "eHh4", "eHh4eHh4", "eHh4eHg=", "eB==", "+/+/"],
        ["", "=", "====", "eHg", "eHg=eHg=", "e_-=", "eH g=", "eHg=\n", "eHh4e", "x", "="],
    ),
    "ipv4": (
        ["127.0.0.1", "192.168.1.01", "000.0.0.0", "::ffff:1.2.3.4", "::1.2.3.04", "0012::1.2.3.4"],
        [
            "",
            "::1",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.4/8",
            "0x1.2.3.4",
            "1.2.3.4 ",
            "00012::1.2.3.4",
            "1..2.3",
        ],
    ),
    "ipv6": (
        ["::", "::1", "2001:DB8::0001", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::"],
        ["", "1.2.3.4", "fe80::1%eth0", "[::1]", "::00001", "1:2:3:4:5:6:7:8:9", ":::", "::1.2.3.04", "1::2::3"],
    ),
    "cidr": (
        ["192.0.2.1/24", "192.0.02.1/024", "2001:db8::1/32", "::/0", "1.2.3.4/32", "::ffff:1.2.3.4/128"],
        ["", "192.0.2.1", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/-1", "1.2.3.4/255.0.0.0", "::/129", "/8", "::1%x/64"],
    ),
    "mac": (
        [
            *("01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab", "01:23:45:67:89:ab:cd:ef"),
            *("0123.4567.89ab.cdef", ":".join(["00"] * 20), ".".join(["0000"] * 10)),
        ],
        [
            *("", "01:23:45:67:89", "01:23-45:67:89:ab", "0123456789ab", "01:23:45:67:89:ag", "1:2:3:4:5:6"),
            *("01:23:45:67:89:ab:cd", "0123.4567", ":".join(["00"] * 19)),
        ],
    ),
    "hostname": (
        [
            *("localhost", "x", "x-y", "example.com", "1.2.3.com", "xn--bcher-kva.example.com", "my-host.example"),
            *("www.詹姆斯.london", "☁→❄.ws", "ex$ample", "<foo>", "a.b.c.dot", f"{'a' * 63}.com", "ôlà.ôlà"),
        ],
        [
            *("", "my-host", "1.1.1.1", "x.", ".x", "a.b.c.d", "-x.com", "x-.com", "a_b.com", "ex ample.org", "xyz-"),
            *(f"{'a' * 64}.com", "a" * 64, ".".join(["a" * 60] * 5), "www.詹姆斯.x", "user@example.com", "x\n"),
        ],
    ),
    "email": (
        [
            *("a@b", "blah@gmail.com", "root@localhost", '" "@example.com', '"Abc\\@def"@example.com', "ä@ö.de"),
            *("Bob <bob@example.com>", '"Bob B." <bob@example.com>', "<bob@example.com>", " bob@example.com "),
            *("Bob B. Bee <bob@example.com>", "bob@example.com (at work)", "a@[127.0.0.1]", "!#$%&'*+-/=?^_`{}|~@x.y"),
        ],
        [
            *("", "x", "@", "a@", "@b", "a@b@c", "a@b c", ".a@b", "a.@b", "a..b@c", "a@.b", "a@b.", "a b@c", "a@b>"),
            *("Bob <bob@example.com", '""@b', '"a@b', "a@[x]", "a@b, c@d", "a@b\n", "Bob bob@example.com", "a@b:c"),
        ],
    ),
    "uri": (
        [
            *("http://somewhere.com", "https://user:pw@host:8080/a/b?x=%zz#y", "/path", "//path", "*", "mailto:a@b"),
            *("localhost:8080", "urn:x", "a:", "/a b", "http://[::1]:80/", "http://host?x", "http://", "file:///x"),
            *("http://[fe80::1%25en0]/", "http://hö.st/%C3%A4", "http://host:/", "a:?x", "/%41?%"),
        ],
        [
            *("", "somewhere.com", "path/x", ":x", "1http://x", "/%zz", "/%", "http://ho st/", "http://host:port/"),
            *(
                "http://[::1/",
                "http://%41/",
                "http://us er@host/",
                "http://x/\n",
                "/\x7f",
                "http://a%zz@host",
                "?x",
                "#x",
            ),
        ],
    ),
    "password": (["", "anything"], []),
    "hexcolor": (["#FFFFFF", "abc", "#0aF"], ["", "#", "#ffff", "#fffffffz", "red"]),
    "rgbcolor": (
        ["rgb(255,255,255)", "rgb( 0 , 10, 199 )"],
        ["", "rgb(300,0,0)", "rgb(1,2)", "rgb(01,2,3)", "RGB(1,2,3)"],
    ),
    "ssn": (["111-11-1111", "999 99 9999", "123456789"], ["", "999 99 999", "1111-11-111"]),
    "creditcard": (["4111-1111-1111-1111", "4012 8888 8888 1881"], ["", "4111-1111-1111-1112", "9999-9999-9999-999"]),
    "isbn": (["0321751043", "978-0321751041", "0 306 40615 2"], ["", "836217463", "0321751044"]),
    "isbn10": (["0321751043", "080442957X"], ["978-0321751041", "080442957x", ""]),
    "isbn13": (["978-0321751041"], ["978-0321751042", "0321751043", ""]),
    "bsonobjectid": (["507f1f77bcf86cd799439011"], ["", "507f1f77bcf86cd79943901", "507f1f77bcf86cd79943901g"]),
    "k8s-short-name": (["x", "a-b", "1", "a" * 63], ["", "A", "-a", "a-", "a.b", "a" * 64, "a\n"]),
    "k8s-long-name": (["x", "a.b-c.d", "a" * 253], ["", "a..b", "A.b", "a.-b", "a" * 254]),
}


def complain(definition: dict[str, Any], value: Any) -> list[str]:
    schema = parse({"type": "object", "properties": {"a": definition}})
    return [str(error) for error in validate({"a": value}, schema, "")]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in FORMATS for text in FORMATS[name][0]])
def test_texts_of_the_format_are_accepted(name: str, text: str) -> None:
    assert complain({"type": "string", "format": name}, text) == []


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in FORMATS for text in FORMATS[name][1]])
def test_other_texts_are_refused(name: str, text: str) -> None:
    [error] = complain({"type": "string", "format": name}, text)
    assert error.startswith('a: Invalid value: "')
    assert f": a in body must be of type {name}: " in error


def test_the_words_of_the_refusal() -> None:
    """The format is named as it is in the schema, though dashes do not matter in it."""
    text = 'a: Invalid value: "x": a in body must be of type %s: "x"'
    assert complain({"type": "string", "format": "date-time"}, "x") == [text % "date-time"]
    assert complain({"type": "string", "format": "datetime"}, "x") == [text % "datetime"]
    assert complain({"type": "string", "format": "date"}, 'a"ä') == [
        r'a: Invalid value: "a\"ä": a in body must be of type date: "a\"ä"'
    ]


@pytest.mark.parametrize("name", ["", "int32", "binary", "ip", "time", "DATE", "k8s-ip-sloppy", "unknown"])
def test_other_formats_are_ignored(name: str) -> None:
    assert complain({"type": "string", "format": name}, "x") == []
    assert complain({"type": "string", "format": name}, 1) == [
        'a: Invalid value: "integer": a in body must be of type string: "integer"'
    ]


@pytest.mark.parametrize("name", ["int32", "int64", "float", "double"])
def test_numbers_of_any_size_are_accepted(name: str) -> None:
    for kind in ("integer", "number"):
        assert complain({"type": kind, "format": name}, 2**62) == []
        assert complain({"type": kind, "format": name}, -(2**62)) == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1, "int64"), (1.5, "float64"), (True, ""), ({}, "")],
)
def test_values_of_other_types(value: Any, shown: str) -> None:
    """The API server says it in another way if there is a format."""
    expected = f'a: Invalid value: "{shown}": a in body must be of type date: "{shown}"'
    assert complain({"type": "string", "format": "date"}, value) == [expected]


def test_lists_are_accepted_for_texts_with_a_format() -> None:
    """It cannot be meant, but so is the API server."""
    assert complain({"type": "string", "format": "date"}, ["x"]) == []
    assert complain({"type": "string", "format": "unknown"}, ["x"]) != []


def test_nulls() -> None:
    text = 'a: Invalid value: "null": a in body must be of type string: "null"'
    assert complain({"type": "string", "format": "date"}, None) == [text]
    assert complain({"type": "string", "format": "date", "nullable": True}, None) == []


def test_the_order_of_complaints() -> None:
    definition = {"type": "string", "format": "date", "maxLength": 3, "enum": ["2026-01-01"]}
    too_long, format_, enum = complain(definition, "never")
    assert "Too long" in too_long
    assert "of type date" in format_
    assert "Unsupported value" in enum


def test_formats_in_combinations() -> None:
    either = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
    assert complain(either, "::1") == []
    assert complain(either, "x") == ['a: Invalid value: "x": a in body must validate at least one schema (anyOf)']


def test_unchanged_values_are_not_refused() -> None:
    schema = parse({"type": "object", "properties": {"a": {"type": "string", "format": "date"}, "b": {}}})
    assert list(validate({"a": "x", "b": 2}, schema, "", {"a": "x", "b": 1})) == []
    assert list(validate({"a": "y"}, schema, "", {"a": "x"})) != []


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_texts_do_not_take_long(name: str) -> None:
    check = find_check({"format": name})
    assert check is not None
    started = time.process_time()
    for text in (*'1a-. "\\(<%/:@é', "1a", "1 ", "a.", "a-", "1:"):
        long = text * 30_000
        for sample in (long, f"{long}\n", f"http://{long}", f"{long}@", f"a@{long}"):
            check(sample)
    assert time.process_time() - started < 60  # less than one, usually


async def test_refusals_name_the_field_over_http(cluster: LocalCluster, client: Client) -> None:
    when = {"type": "string", "format": "date-time"}
    cluster.apply(make_definition(spec={"type": "object", "properties": {"when": when}}))
    await client.create(KEXES, make_kex(spec={"when": "2026-01-01T00:00:00Z"}))
    reply = await client.send_patch(f"{KEXES}/one", {"spec": {"when": "tomorrow"}}, expected=422)
    text = 'Invalid value: "tomorrow": spec.when in body must be of type date-time: "tomorrow"'
    assert reply.body["message"] == f'Kex.example.com "one" is invalid: spec.when: {text}'
    cause = {"reason": "FieldValueTypeInvalid", "message": text, "field": "spec.when"}
    assert reply.body["details"]["causes"] == [cause]


async def test_defaults_have_the_format(cluster: LocalCluster, client: Client) -> None:
    when = {"type": "string", "format": "date-time", "default": "tomorrow"}
    definition = make_definition(spec={"type": "object", "properties": {"when": when}})
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    reply = await client.call("POST", path, json=definition)
    field = "spec.validation.openAPIV3Schema.properties[spec].properties[when].default"
    assert causes(reply) == [(field, "FieldValueTypeInvalid")]
