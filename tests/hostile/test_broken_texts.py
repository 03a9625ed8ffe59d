"""
Texts that no encoding has: lone surrogates. Python has them in names of files and in the strings of ``json.loads()``.

So they come from JSON in annotations and specs through handlers to logs, errors, results, patches, and events.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import kopf
from kopf._values import codec
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator
from tests.hostile.spoiling import SpoilingProxy, custom, find_objects


def _do(how: str, text: str, body: kopf.Body, patch: kopf.Patch, logger: kopf.Logger) -> Any:
    match how:
        case "message":
            logger.info("said %s", text)
        case "event":
            kopf.info(body, reason=f"Re{text}", message=text)
        case "temporary":
            raise kopf.TemporaryError(text, delay=0.01)
        case "permanent":
            raise kopf.PermanentError(text)
        case "arbitrary":
            raise ValueError(text)
        case "result":
            return {"said": text, text: [text]}
        case "patch":
            patch.status["said"] = text
        case "key":
            patch.status[text] = "x"
    return None


@pytest.mark.parametrize("how", ["message", "event", "temporary", "permanent", "arbitrary", "result", "patch", "key"])
async def test_broken_texts_of_handlers(operator: Operator, kex: Objects, logs: Logs, calls: Calls, how: str) -> None:
    @kopf.on.create("kopfexamples", backoff=0.01)
    async def fn(
        name: str,
        spec: kopf.Spec,
        logger: kopf.Logger,
        body: kopf.Body,
        patch: kopf.Patch,
        retry: int,
        **_: Any,
    ) -> Any:
        calls.append(name)
        text = json.loads(spec.get("json", '""'))
        return _do(how, text, body, patch, logger) if text and not retry else None

    logs.expected.append(".*said.*")
    operator.set("posting.enabled", True)
    await operator.start()
    await kex.create("bad", spec={"json": '"said \\ud800"'})
    await kex.wait_handled("bad")
    await kex.create("other")
    await kex.wait_handled("other")
    assert operator.is_running
    assert len(logs.get_messages(level=logging.WARNING)) <= 1


async def test_malformed_answers_to_events(operator: Operator, proxy: SpoilingProxy, kex: Objects, logs: Logs) -> None:
    """An event that cannot be posted, ends neither the other ones nor the operator."""

    @kopf.on.create("kopfexamples")
    async def fn(logger: kopf.Logger, **_: Any) -> None:
        logger.info("said")

    def rewrite(content: Any) -> None:
        for event in find_objects(content, plural="events"):
            if "involvedObject" in event:
                del event["metadata"]

    logs.expected.append("Failed to post an event.*")
    proxy.rewrite = rewrite
    operator.set("posting.enabled", True)
    await operator.start()
    await kex.create("first")
    await logs.wait("Failed to post an event.*")
    await kex.create("other")
    await kex.wait_handled("other")
    assert operator.is_running


MALFORMED = [
    b"1e999",
    b"9" * 5000,
    b'"\xff\xfe"',
    b'{"\xff": 1}',
    b"NaN",
    b"[1, -Infinity]",
    b'"\\ud800"',
    b"01",
    b'{"a" 1}',
]
UNREADABLE = "The object cannot be decoded: .*It is not handled until.*"


@pytest.mark.parametrize("stanza", ["spec.field", "spec", "metadata.managedFields", "metadata.generation"])
@pytest.mark.parametrize(("raw", "streaming"), [*((raw, False) for raw in MALFORMED), (b"NaN", True)])
async def test_malformed_values(
    operator: Operator,
    proxy: SpoilingProxy,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    raw: bytes,
    stanza: str,
    streaming: bool,
) -> None:
    """Kubernetes itself has no such values, aggregated APIs can: the object is set aside, the others are handled."""

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def fn(name: str, reason: str, spec: kopf.Spec, **_: Any) -> None:
        calls.append((reason, name, dict(spec)))

    @kopf.on.event("kopfexamples")
    async def event(body: kopf.Body, **_: Any) -> None:
        calls.append(("event", body.metadata.name, dict(body.spec)))

    def rewrite(content: Any) -> None:
        """Spoil what is there already when the operator starts, and what is spoiled later."""
        for obj in find_objects(content):
            metadata = obj.get("metadata") or {}
            if metadata.get("name") == "crafted" or (obj.get("spec") or {}).get("field") == "spoil":
                first, _, second = stanza.partition(".")
                obj[first] = {**obj.get(first, {}), second: custom(0)} if second else custom(0)

    logs.expected += [".*failed with an exception.*"]  # a handler was the first to look
    operator.set("watching.initial_streaming", streaming)
    proxy.texts, proxy.rewrite = [raw], rewrite
    await kex.create("crafted")
    await kex.create("other")
    await operator.start()
    await kex.wait_handled("other")
    await kex.create("later")
    await kex.wait_handled("later")
    await kex.merge({"spec": {"field": "spoil"}}, "later")
    await kex.delete("later")
    await kex.wait_gone("later")
    await kex.create("last")
    await kex.wait_handled("last")
    assert operator.is_running
    assert len(logs.find(UNREADABLE)) <= 2
    assert len(logs.get_messages(level=logging.WARNING)) <= 8


@pytest.mark.parametrize("raw", [b"-0.0e-99999", b"1" + b"0" * 25, b'"\\u0000"'], ids=lambda raw: repr(raw[:10]))
async def test_unusual_values_are_handled(
    operator: Operator,
    proxy: SpoilingProxy,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    raw: bytes,
) -> None:
    @kopf.on.create("kopfexamples")
    async def fn(spec: kopf.Spec, **_: Any) -> None:
        calls.append(spec["field"])

    proxy.texts = [raw]
    await operator.start()
    await kex.create("crafted", spec={"field": custom(0)})
    await logs.wait("Creation is processed: 1 succeeded; 0 failed.")
    assert list(calls) == [json.loads(raw)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\udcffb", "a\ufffdb"),
        ({"\ud800": ["\udfff", ("\ud800\udc00",)]}, {"\ufffd": ["\ufffd", ["\ufffd\ufffd"]]}),
        ("\U0001f600\ud7ff\ue000", "\U0001f600\ud7ff\ue000"),
    ],
)
def test_broken_texts_are_replaced_as_in_kubernetes(value: Any, expected: Any) -> None:
    assert json.loads(codec.encode(value)) == expected
    assert json.loads(codec.encode_sorted(value)) == expected


def test_broken_texts_in_too_deep_values() -> None:
    value: Any = "\ud800"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(codec.NestingError):
        codec.encode(value)
    while isinstance(value, list):  # a deep value is destroyed recursively by some versions of Python
        value = value[0]
