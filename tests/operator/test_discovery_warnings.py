"""What is said of resources that are not as the handlers need them; with no requests."""

from __future__ import annotations

import asyncio
import logging

import pytest

import kopf
from kopf._client.resources.discovery import Discovery
from kopf._handlers.registry import OperatorRegistry
from kopf._operator.discovery_warnings import DiscoveryWarnings, is_watchable, warn_of_clashes
from kopf._values.resources import Resource
from tests.runtimes import make_runtime

VERBS = frozenset({"list", "watch", "get"})


def make_resource(plural: str, group: str = "kopf.dev", *, verbs: frozenset[str] = VERBS) -> Resource:
    return Resource(group, "v1", plural, plural.title(), preferred=True, verbs=verbs)


KEX = make_resource("kopfexamples")


class Observed:
    """Warnings of handlers for these resources, as they are discovered again and again."""

    def __init__(self, *names: str) -> None:
        registry = OperatorRegistry()
        for name in names:
            kopf.on.event(name, registry=registry)(lambda **_: None)
        self.warnings = DiscoveryWarnings(make_runtime().api, registry)

    async def look(self, *resources: Resource, **other: object) -> None:
        discovery = Discovery(frozenset(resources), **{"unavailable": {}, **other})  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            self.warnings.look_at(discovery, group)


@pytest.fixture(autouse=True)
def _levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kopf._operator")


async def test_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    observed = Observed("kopfexamples")
    await observed.look(KEX, make_resource("others"))
    assert not observed.warnings.are_given
    assert not caplog.messages


@pytest.mark.parametrize(
    ("resources", "other", "warning"),
    [
        ([KEX, make_resource("kopfexamples", "other.dev")], {}, "is ambiguous, so it is not served: it can be any of"),
        ([make_resource("kopfexamples", verbs=frozenset({"create"}))], {}, "cannot list & watch, only create."),
        ([KEX], {"improper": frozenset({"x/" + "y" * 1000})}, f"'x/{'y' * 98}' is skipped: it is no proper name"),
    ],
)
async def test_each_thing_is_said_once(
    caplog: pytest.LogCaptureFixture,
    resources: list[Resource],
    other: dict[str, object],
    warning: str,
) -> None:
    observed = Observed("kopfexamples")
    for _ in range(2):
        await observed.look(*resources, **other)
    [message] = caplog.messages
    assert warning in message
    assert observed.warnings.are_given


async def test_unavailable_groups(caplog: pytest.LogCaptureFixture) -> None:
    observed = Observed("kopfexamples")
    for versions in (["a/v1"], ["a/v1"], ["a/v1", "b/v1"], ["b/v1"], [], []):
        await observed.look(KEX, unavailable=dict.fromkeys(versions, ValueError("boo!")))
    assert caplog.messages == [
        "Some API groups are unavailable, so their resources are unknown for now: a/v1 (boo!)",
        "Some API groups are unavailable, so their resources are unknown for now: a/v1 (boo!); b/v1 (boo!)",
        "All API groups are available again.",
    ]


@pytest.mark.fastforward
async def test_resources_of_unavailable_groups_are_not_called_absent(caplog: pytest.LogCaptureFixture) -> None:
    observed = Observed("kopfexamples.kopf.dev")
    await observed.look(unavailable={"kopf.dev/v1": ValueError("boo!")})
    assert caplog.messages == [
        "Some API groups are unavailable, so their resources are unknown for now: kopf.dev/v1 (boo!)"
    ]
    caplog.clear()
    await observed.look()
    assert caplog.messages[0] == "All API groups are available again."
    assert "No resource is found for 'kopfexamples' of kopf.dev." in caplog.messages[1]


@pytest.mark.fastforward
async def test_absent_resources_of_the_available_versions(caplog: pytest.LogCaptureFixture) -> None:
    observed = Observed("kopfexamples.v1.kopf.dev")
    await observed.look(unavailable={"kopf.dev/v2": ValueError("boo!")})
    assert "No resource is found for" in caplog.messages[1]


@pytest.mark.parametrize(
    ("verbs", "expected"), [(set(), True), ({"list", "watch"}, True), ({"list"}, False), ({"create"}, False)]
)
def test_what_can_be_watched(verbs: set[str], expected: bool) -> None:
    assert is_watchable(make_resource("x", verbs=frozenset(verbs))) is expected


def test_handlers_of_the_same_id(caplog: pytest.LogCaptureFixture) -> None:
    registry = OperatorRegistry()
    for _ in range(2):

        @kopf.on.create("kopfexamples", id="same", registry=registry)
        def fn(**_: object) -> None: ...

    kopf.on.create("kopfexamples", id="other", registry=registry)(lambda **_: None)
    warn_of_clashes(KEX, registry.plan([KEX])[KEX])
    [message] = caplog.messages
    assert "have the same id 'same'" in message
