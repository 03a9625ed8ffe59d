"""Generated inputs of every kind, see `inputs`: nothing of them stops anything, says too much, or leaks."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import pathlib
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import strategies as st

import kopf
from kopf._client.auth.credentials import LoginError
from kopf._client.auth.exec_plugins import _parse as parse_plugin
from kopf._client.auth.kubeconfig import make_connection_info, read_kubeconfigs
from kopf._client.errors import make_error
from kopf._client.resources.listing import parse_list
from kopf._client.resources.watching import parse_line
from kopf._coordination.peers import Peer, Peers
from kopf._values import malformed_json
from kopf._values.objects import KubeObject
from tests.behaviour.objects import API, Objects
from tests.behaviour.peerings import PeeringObject, define_peering
from tests.behaviour.running import Calls, Logs, Operator
from tests.client.plugins import V1
from tests.hostile.inputs import COUNT, examples, get_documents, values
from tests.hostile.oracle import SECRET, Oracle
from tests.hostile.spoiling import SpoilingProxy, custom, find_objects

pytestmark = pytest.mark.timeout(300 + COUNT / 5)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@pytest.fixture
def oracle(operator: Operator, kex: Objects, logs: Logs, calls: Calls) -> Oracle:
    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    async def fn(name: str, **_: Any) -> None:
        calls.append(name)

    return Oracle(operator, kex, logs, calls)


def make_texts(decode: Callable[[bytes], object] = msgspec.json.decode) -> list[bytes]:
    """Generated documents as they can come from a server: it can send anything, but only what can be decoded so."""
    texts: list[bytes] = []
    for text in get_documents():
        try:
            decode(_encode(text))
        except (ValueError, RecursionError):
            text = "[" * 15_000 + "]" * 15_000
        texts.append(_encode(text))
    return texts


async def test_objects(operator: Operator, proxy: SpoilingProxy, kex: Objects, oracle: Oracle) -> None:
    proxy.texts = make_texts(json.loads)  # it takes ``NaN`` and large numbers, too
    await operator.start()
    await oracle.begin()
    for number in range(COUNT):
        await kex.create(f"hostile-{number}", spec={"x": custom(number), "secret": SECRET})
        if number % 100 == 0:
            await oracle.check_promptness(f"other-{number}")
    await oracle.check_promptness("last")
    for number in range(COUNT):
        await kex.delete(f"hostile-{number}")
    await oracle.check(inputs=COUNT, lines=4, kept=100_000)


_ITEMS: list[Callable[[str], Any]] = [
    lambda mark: mark,
    lambda mark: {"metadata": mark, "spec": {"secret": SECRET}},
    lambda mark: {"kind": mark, "metadata": {"name": "x", "labels": mark}, "secret": SECRET},
    lambda mark: {"metadata": {"name": mark, "namespace": "default", "uid": mark}},
    lambda mark: {"metadata": {"name": "x", "annotations": {"secret": SECRET, "x": mark}, "finalizers": mark}},
]


async def test_lists(operator: Operator, proxy: SpoilingProxy, kex: Objects, oracle: Oracle) -> None:
    """Generated items between the proper ones: instead of objects, and in their metadata."""
    marks = itertools.count()

    def rewrite(content: Any) -> None:
        if content.get("kind") == "KopfExampleList":
            for number in itertools.islice(marks, 100):
                content["items"].append(_ITEMS[number % len(_ITEMS)](custom(number % COUNT)))

    proxy.texts, proxy.rewrite = make_texts(), rewrite
    await operator.start()
    await oracle.begin()
    while (number := next(marks)) < COUNT:
        await oracle.check_promptness(f"expiring-{number}")
        # Streams that bring nothing are reopened with growing pauses, so let the next one bring something first.
        await oracle.check_promptness(f"other-{number}")
    await oracle.check(inputs=COUNT, lines=2, kept=20_000)


async def test_watch_lines(operator: Operator, proxy: SpoilingProxy, kex: Objects, oracle: Oracle) -> None:
    """Generated objects instead of those that were created, and generated metadata in them."""
    proxy.texts = make_texts()

    def rewrite(content: Any) -> None:
        obj = content.get("object") if isinstance(content, dict) else None
        name = obj["metadata"].get("name", "") if isinstance(obj, dict) and "metadata" in obj else ""
        if name.startswith("hostile-"):
            number = int(name.removeprefix("hostile-"))
            content["object"] = _ITEMS[number % len(_ITEMS)](custom(number))

    proxy.rewrite = rewrite
    await operator.start()
    await oracle.begin()
    for number in range(COUNT):
        await kex.create(f"hostile-{number}")
        if number % 100 == 0:
            await oracle.check_promptness(f"other-{number}")
    await oracle.check(inputs=COUNT, lines=2, kept=20_000)


async def test_peers(operator: Operator, proxy: SpoilingProxy, api: API, oracle: Oracle) -> None:
    """Generated records of peers, all but those that are proper ones: these have their say in who works."""
    records = [text for text in make_texts() if _is_improper_record(text)]
    proxy.texts = [*records]
    marks = itertools.count()

    def rewrite(content: Any) -> None:
        for obj in find_objects(content, "clusterkopfpeerings"):
            if obj.get("kind") == "ClusterKopfPeering":
                status = obj["status"] = dict(obj.get("status") or {})
                status |= {f"p{number}": custom(number % len(records)) for number in itertools.islice(marks, 100)}

    define_peering(operator.cluster)
    peering = PeeringObject(api)
    await peering.create()
    proxy.rewrite = rewrite
    await operator.start(peering_name="default", standalone=False)
    await oracle.begin()
    while (number := next(marks)) < COUNT:
        await peering.put("touch", {"lastseen": "2000-01-01T00:00:00", "lifetime": 0, "message": str(number)})
        if number % 10 == 0:
            await oracle.check_promptness(f"other-{number}")
        await asyncio.sleep(0)
    await oracle.check(inputs=COUNT, lines=2)


def _is_improper_record(text: bytes) -> bool:
    """Tell if no operator writes such ones; but it can be in a custom resource, which is proper JSON."""
    try:
        record = msgspec.json.decode(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    try:
        Peer.parse("x", record)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    "shape",
    [
        "%s",
        '{"type":"ADDED","object":%s}',
        '{"type":%s,"object":{}}',
        '{"type":"ADDED","object":{"metadata":{"name":"x","uid":%s}}}',
        '{"type":"ADDED","object":{"metadata":{"name":"x"},"spec":%s}}',
    ],
)
def test_lines_of_streams(shape: str) -> None:
    for text in get_documents():
        try:
            obj = KubeObject.from_json(parse_line(_encode(shape % text)).object)
            dict(obj)
        except msgspec.DecodeError:  # the stream is reopened
            continue
        assert isinstance(obj.head.name, str)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000,
        '{"a":' * 3000,
        '{"items":' + "[" * 3000,
        '{"type":"ADDED","object":' + "[" * 3000,
    ],
)
def test_unclosed_documents(text: str) -> None:
    for parse in (parse_line, parse_list, KubeObject.from_json):
        with pytest.raises(msgspec.DecodeError):
            parse(text.encode())


@pytest.mark.parametrize(
    "shape",
    [
        "%s",
        '{"metadata":%s}',
        '{"metadata":{},"items":[{"metadata":{"name":"x"},"spec":%s}]}',
        '{"metadata":{"shardInfo":%s},"items":[%s]}',
        '{"items":%s,"metadata":{}}',
    ],
)
def test_listings(shape: str) -> None:
    for text in get_documents():
        try:
            _, items = parse_list(_encode(shape.replace("%s", text)))
        except msgspec.DecodeError:  # the listing is repeated
            continue
        assert all(isinstance(item, bytes) for item in items)


def test_the_neighbours_of_deep_objects_are_listed() -> None:
    for text in get_documents():
        try:
            msgspec.json.decode(malformed_json.prune(_encode(text), 32))
        except ValueError:  # e.g. the brackets are not balanced
            continue
        item = '{"metadata":{"name":"%s","annotations":{"a":"]}\\\\\\""}},"spec":{"a":%s}}'
        found = [item % ("a", 1), item % ("b", text), item % ("c", "[" * 20_000 + "]" * 20_000)]
        content = f'{{"metadata":{{"resourceVersion":"1"}},"items":[{",".join(found)}]}}'
        listing, items = parse_list(_encode(content))
        assert listing.metadata.resourceVersion == "1"
        assert [KubeObject.salvage(raw).head.name for raw in items] == ["a", "b", "c"]


@pytest.mark.parametrize("status", [302, 404, 410, 503])
def test_errors_of_servers(status: int) -> None:
    for text in get_documents():
        for body in (text, f'{{"kind":"Status","details":{text},"code":{text},"reason":{text}}}'):
            assert len(str(make_error(status=status, method="GET", path="/", headers={}, body=_encode(body)))) < 100_000


def test_records_of_peers() -> None:
    peers = Peers("us")
    for status in examples(st.dictionaries(st.text(max_size=5), values()) | values(), seed=7):
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        problems = peers.take(status, now=now, time=1.0)
        assert all(len(problem) < 2000 for problem in problems.values())
        peers.get_standing(0, time=1.0)
        assert (peers.get_next_death(time=1.0) or 0) < 10**6
        list(peers.get_remains(time=1.0))


def test_kubeconfigs(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config"
    named = st.fixed_dictionaries(
        {"name": st.just("x")},
        optional={
            kind: st.dictionaries(
                st.sampled_from(
                    [
                        "server",
                        "cluster",
                        "user",
                        "namespace",
                        "insecure-skip-tls-verify",
                        "certificate-authority-data",
                        "proxy-url",
                        "token",
                        "exec",
                        "env",
                        "auth-provider",
                        "username",
                        "password",
                        "client-key-data",
                        "extensions",
                    ]
                ),
                values(),
                max_size=4,
            )
            | values()
            for kind in ("cluster", "user", "context")
        },
    )
    configs = (
        st.fixed_dictionaries(
            {"current-context": st.just("x")},
            optional={kind: st.lists(named, max_size=2) | values() for kind in ("clusters", "users", "contexts")},
        )
        | values()
    )
    said: list[str] = []
    texts = [yaml.safe_dump(config) for config in examples(configs, seed=8)]
    for text in [*texts, *get_documents()]:
        path.write_bytes(_encode(f"{text}\n# {SECRET}"))
        try:
            config = read_kubeconfigs([str(path)])
            if not config.is_empty:
                make_connection_info(config)
        except LoginError as error:
            said.append(str(error))
    assert max(map(len, said)) < 100_000
    assert not any(SECRET in text for text in said)


def test_outputs_of_plugins() -> None:
    keys = st.sampled_from(["token", "clientCertificateData", "clientKeyData", "expirationTimestamp"])
    statuses = st.dictionaries(keys, values() | st.just(SECRET)) | values()
    outputs = [
        json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status, "secret": SECRET})
        for status in examples(statuses, seed=10)
    ]
    for text in [*outputs, *(f"{text}{SECRET}" for text in get_documents())]:
        try:
            credentials = parse_plugin(_encode(text), api_version=V1, what="The plugin")
        except LoginError as error:
            said = str(error) + "".join(traceback.format_exception_only(error))
            assert len(said) < 10_000
            assert SECRET not in said or "expirationTimestamp" in said
        else:
            assert isinstance(credentials.token or "", str)
            assert SECRET not in repr(credentials)


def test_the_inputs_differ() -> None:
    assert len(set(get_documents())) > COUNT * 0.5
