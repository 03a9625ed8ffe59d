"""What handlers get can be serialised and copied, by any library, with nothing lost."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
import yaml

import kopf
from kopf._handlers.causes import WatchingCause
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Operator
from tests.handlers.builders import make_watching_cause, make_watching_handler

pytestmark = pytest.mark.fastforward

Encoder = Callable[[Any], Any]
ENCODERS: list[Encoder] = [
    lambda value: json.loads(json.dumps(value)),
    lambda value: orjson.loads(orjson.dumps(value)),
    lambda value: msgspec.json.decode(msgspec.json.encode(value)),
    lambda value: yaml.safe_load(yaml.safe_dump(value)),
    lambda value: pickle.loads(pickle.dumps(value)),
    copy.deepcopy,
]
COPIERS: list[Encoder] = [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy, copy.copy]


def visible(obj: dict[str, Any]) -> dict[str, Any]:
    """Give the object as handlers see it: who owns which field, is not shown to them."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


async def test_events(operator: Operator, kex: Objects, calls: Calls) -> None:
    def when(event: kopf.RawEvent, **_: Any) -> bool:
        calls.append([encode(event) for encode in ENCODERS])
        return False

    kopf.on.event("kopfexamples", id="named_fn")(
        calls.noting(lambda event, **_: [encode(event) for encode in ENCODERS])
    )

    kopf.on.event("kopfexamples", id="unnamed_fn")(
        lambda **kwargs: calls.append([encode(kwargs["event"]) for encode in ENCODERS])
    )

    kopf.on.event("kopfexamples", when=kopf.not_(kopf.not_(when)))(lambda **_: None)
    await operator.start()
    obj = visible(await kex.create())
    await calls.wait_length(3)
    assert calls == [[{"type": "ADDED", "object": obj}] * len(ENCODERS)] * 3


async def test_bodies_and_their_stanzas_as_dicts(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(body: kopf.Body, **_: Any) -> None:
        for encode in ENCODERS:
            stanzas = (body.spec, body.metadata, body.status, body.metadata.labels, body.metadata.annotations)
            calls.append([encode(dict(body)), *(encode(dict(stanza)) for stanza in stanzas)])

    await operator.start()
    obj = visible(await kex.create(labels={"l": "v"}, annotations={"a": "w"}, status={"s": ["t"]}))
    await calls.wait_length(len(ENCODERS))
    expected = [obj, {"field": "value"}, obj["metadata"], {"s": ["t"]}, {"l": "v"}, {"a": "w"}]
    assert calls == [expected] * len(ENCODERS)


async def test_bodies_and_their_stanzas_as_they_are(operator: Operator, kex: Objects, calls: Calls) -> None:
    @kopf.daemon("kopfexamples")
    async def daemon_fn(body: kopf.Body, **_: Any) -> None:
        stanzas = (body, body.spec, body.metadata, body.status, body.metadata.labels, body.metadata.annotations)
        for value, make_copy in itertools.product(stanzas, COPIERS):
            copied = make_copy(value)
            calls.append((type(copied) is type(value), copied == value, dict(copied) == dict(value), bool(copied)))

    await operator.start_and_call(kex, calls, labels={"l": "v"}, annotations={"a": "w"}, status={"s": ["t"]}, times=18)
    assert [*calls] == [(True, True, True, True)] * 18


# --- the price: nothing is decoded for those who do not look ---


class Callable1:
    def __call__(self, event: Any, **_: Any) -> None: ...

    def method(self, event: Any, **_: Any) -> None: ...


def name_it(event: Any, **_: Any) -> None: ...
def take_all(**kwargs: Any) -> None:
    str(kwargs)


def ignore_it(body: Any, **_: Any) -> None: ...
def ignore_all(**_ignored: Any) -> None: ...


@functools.wraps(ignore_it)
def wrap(*args: Any, **kwargs: Any) -> None:
    ignore_it(*args, **kwargs)


def get_event(cause: WatchingCause, fn: Any, **filters: Any) -> Any:
    return cause.kwargs_for(make_watching_handler(fn=fn, **filters))["event"]


@pytest.mark.parametrize(
    "fn",
    [
        name_it,
        take_all,
        functools.partial(name_it, x=1),
        wrap,
        Callable1(),
        Callable1().method,
        dict,
    ],
)
def test_those_who_look_get_plain_dicts(fn: Any) -> None:
    cause = make_watching_cause({"spec": {"field": "value"}})
    for event in (
        get_event(cause, fn),
        get_event(cause, ignore_it, when=fn),
        get_event(cause, ignore_it, value=fn),
        get_event(cause, ignore_it, labels={"x": fn}),
        get_event(cause, ignore_it, annotations={"x": fn}),
    ):
        assert type(event) is dict
        assert event["object"]["spec"] == {"field": "value"}


@pytest.mark.parametrize("fn", [ignore_it, ignore_all, functools.partial(ignore_it, x=1)])
def test_it_is_not_made_for_those_who_do_not_look(fn: Any) -> None:
    handler = make_watching_handler(fn=fn, when=fn, labels={"x": "y"})
    assert "event" not in make_watching_cause({"spec": {"field": "value"}}).kwargs_for(handler)


def test_indices_take_precedence_over_the_event() -> None:
    cause = make_watching_cause({}, indices={"event": "index"})
    assert get_event(cause, name_it) == "index"
