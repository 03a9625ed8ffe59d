"""Generated inputs of every kind, see `inputs`: nothing of them stops anything, says too much, or leaks."""
from __future__ import annotations

import asyncio
import datetime
import json
import logging
import os
import pathlib
import traceback
from typing import Any

import msgspec
import psutil
import pytest
import yaml
from hypothesis import strategies as st

import kopf
from kopf._client.auth.credentials import LoginError
from kopf._client.auth.exec_plugins import _parse as parse_plugin
from kopf._client.auth.kubeconfig import make_connection_info, read_kubeconfigs
from kopf._client.errors import make_error
from kopf._client.resources.listing import _parse_list as parse_list
from kopf._client.resources.watching import _parse_line as parse_line
from kopf._coordination.peers import Peers
from kopf._values.objects import KubeObject
from tests.behaviour.objects import Objects
from tests.behaviour.running import Journal, Logs, Operator
from tests.client.plugins import V1
from tests.hostile.inputs import COUNT, documents, examples, values
from tests.hostile.spoiling import SpoilingProxy, custom

SECRET = "S3cr3tS3cr3t"

pytestmark = pytest.mark.timeout(60 + COUNT / 5)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


async def test_objects(
        operator: Operator, registry: kopf.OperatorRegistry, proxy: SpoilingProxy, kex: Objects, logs: Logs,
        calls: Journal[str],
) -> None:
    @kopf.on.create("kopfexamples", registry=registry)
    @kopf.on.update("kopfexamples", registry=registry)
    async def fn(name: str, **_: Any) -> None:
        calls.append(name)

    for text in examples(documents(), seed=2):
        try:
            msgspec.json.decode(_encode(text))
        except (ValueError, RecursionError):
            text = "[" * 1500 + "]" * 1500  # API servers send only proper JSON
        proxy.texts.append(_encode(text))
    process = psutil.Process()
    await operator.start()
    await kex.create("first")
    await kex.wait_handled("first")
    files, memory = process.num_fds(), process.memory_info().rss
    for number in range(len(proxy.texts)):
        await kex.create(f"hostile-{number}", spec={"x": custom(number)})
        if number % 100 == 0:
            await kex.create(f"other-{number}")
            async with asyncio.timeout(5):  # a second, and a margin for busy machines
                await calls.wait(lambda items, name=f"other-{number}": name in items)  # type: ignore[misc]
    await kex.create("last")
    async with asyncio.timeout(5):
        await calls.wait(lambda items: "last" in items)
    for number in range(len(proxy.texts)):
        await kex.delete(f"hostile-{number}")
    assert operator.is_running
    assert process.num_fds() <= files + 10
    assert process.memory_info().rss <= memory + 200 * 2**20 + COUNT * 100_000
    assert sum(map(len, logs.get_messages(level=logging.WARNING))) < 1000 + 500 * COUNT


@pytest.mark.parametrize("shape", ["%s", '{"type":"ADDED","object":%s}', '{"type":%s,"object":{}}',
                                   '{"type":"ADDED","object":{"metadata":{"name":"x","uid":%s}}}',
                                   '{"type":"ADDED","object":{"metadata":{"name":"x"},"spec":%s}}'])
def test_lines_of_streams(shape: str) -> None:
    for text in examples(documents(), seed=3):
        try:
            obj = KubeObject.from_json(parse_line(_encode(shape % text)).object)
            dict(obj)
        except msgspec.DecodeError:  # the stream is reopened
            continue
        assert isinstance(obj.head.name, str)


@pytest.mark.parametrize("text", [
    "[" * 3000, '{"a":' * 3000, '{"items":' + "[" * 3000, '{"type":"ADDED","object":' + "[" * 3000,
])
def test_unclosed_documents(text: str) -> None:
    for parse in (parse_line, parse_list, KubeObject.from_json):
        with pytest.raises(msgspec.DecodeError):
            parse(text.encode())


@pytest.mark.parametrize("shape", [
    "%s", '{"metadata":%s}', '{"metadata":{},"items":[{"metadata":{"name":"x"},"spec":%s}]}',
    '{"metadata":{"shardInfo":%s},"items":[%s]}', '{"items":%s,"metadata":{}}',
])
def test_listings(shape: str) -> None:
    for text in examples(documents(), seed=4):
        try:
            _, items = parse_list(_encode(shape.replace("%s", text)))
        except msgspec.DecodeError:  # the listing is repeated
            continue
        assert all(isinstance(item, bytes) for item in items)


def test_the_neighbours_of_deep_objects_are_listed() -> None:
    for text in examples(documents(), seed=5):
        try:
            msgspec.json.decode(_encode(text))
        except RecursionError:
            pass
        except ValueError:
            continue
        item = '{"metadata":{"name":"%s","annotations":{"a":"]}\\\\\\""}},"spec":{"a":%s}}'
        found = [item % ("a", 1), item % ("b", text), item % ("c", "[" * 2000 + "]" * 2000)]
        content = f'{{"metadata":{{"resourceVersion":"1"}},"items":[{",".join(found)}]}}'
        listing, items = parse_list(_encode(content))
        assert listing.metadata.resourceVersion == "1"
        assert [KubeObject.from_json(raw).head.name for raw in items] == ["a", "b", "c"]


@pytest.mark.parametrize("status", [302, 404, 410, 503])
def test_errors_of_servers(status: int) -> None:
    for text in examples(documents(), seed=6):
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
    named = st.fixed_dictionaries({"name": st.just("x")}, optional={
        kind: st.dictionaries(st.sampled_from([
            "server", "cluster", "user", "namespace", "insecure-skip-tls-verify", "certificate-authority-data",
            "proxy-url",
            "token", "exec", "env", "auth-provider", "username", "password", "client-key-data", "extensions",
        ]), values(), max_size=4) | values() for kind in ("cluster", "user", "context")
    })
    configs = st.fixed_dictionaries({"current-context": st.just("x")}, optional={
        kind: st.lists(named, max_size=2) | values() for kind in ("clusters", "users", "contexts")
    }) | values()
    said: list[str] = []
    texts = [yaml.safe_dump(config) for config in examples(configs, seed=8, count=max(10, COUNT // 5))]
    for text in [*texts, *examples(documents(), seed=9, count=max(10, COUNT // 5))]:
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
    for text in [*outputs, *(f"{text}{SECRET}" for text in examples(documents(), seed=11))]:
        try:
            credentials = parse_plugin(_encode(text), api_version=V1, what="The plugin")
        except LoginError as error:
            said = str(error) + "".join(traceback.format_exception_only(error))
            assert len(said) < 10_000
            assert SECRET not in said or "expirationTimestamp" in said
        else:
            assert isinstance(credentials.token or "", str)
            assert SECRET not in repr(credentials)


def test_the_inputs_are_generated() -> None:
    texts = examples(documents(), seed=12)
    assert len(texts) >= min(COUNT, 30) * 0.5
    assert os.environ.get("KOPF_HOSTILE_INPUTS") or COUNT <= 100
