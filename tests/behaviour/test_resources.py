"""Resource selectors: in which ways a resource can be named, and what is served then."""

from __future__ import annotations

from typing import Any

import pytest

import kopf
from tests.behaviour.objects import API, Objects
from tests.behaviour.resources import create, define
from tests.behaviour.running import Calls, Logs, Operator, do_nothing


@pytest.fixture(autouse=True)
def _resources(operator: Operator) -> None:
    define(
        operator.cluster,
        "kexes",
        group="kopf.dev",
        versions=("v1", "v1beta1"),
        shortNames=["kx", "kxs"],
        categories=["kopfcat", "all"],
    )
    define(operator.cluster, "rivals", group="example.com", shortNames=["rv"], categories=["kopfcat"])


def note(calls: Calls, *args: Any, what: Any = None, **options: Any) -> None:
    """Note what is served by that notation: of which resource the objects are."""

    @kopf.on.event(*args, id=str(what), **options)
    async def fn(resource: kopf.Resource, name: str, **_: Any) -> None:
        if name != "kubernetes" and not name.startswith("kube-"):
            calls.append(repr(resource) if what is None else (what, repr(resource)))


NOTATIONS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("kopf.dev", "v1", "kexes"), {}, "kexes.v1.kopf.dev"),
    (("kopf.dev/v1", "kexes"), {}, "kexes.v1.kopf.dev"),
    (("kopf.dev", "v1beta1", "kexes"), {}, "kexes.v1beta1.kopf.dev"),
    (("kopf.dev/v1beta1", "kexes"), {}, "kexes.v1beta1.kopf.dev"),
    (("kopf.dev", "kexes"), {}, "kexes.v1.kopf.dev"),
    (("kexes.kopf.dev",), {}, "kexes.v1.kopf.dev"),
    (("kexes.v1beta1.kopf.dev",), {}, "kexes.v1beta1.kopf.dev"),
    (("kx.kopf.dev",), {}, "kexes.v1.kopf.dev"),
    (("kopf.dev", "Kexe"), {}, "kexes.v1.kopf.dev"),
    (("kopf.dev/v1beta1", "kx"), {}, "kexes.v1beta1.kopf.dev"),
    (("kexes",), {}, "kexes.v1.kopf.dev"),
    (("kexe",), {}, "kexes.v1.kopf.dev"),
    (("Kexe",), {}, "kexes.v1.kopf.dev"),
    (("kx",), {}, "kexes.v1.kopf.dev"),
    (("kxs",), {}, "kexes.v1.kopf.dev"),
    ((), {"kind": "Kexe"}, "kexes.v1.kopf.dev"),
    ((), {"plural": "kexes"}, "kexes.v1.kopf.dev"),
    ((), {"singular": "kexe"}, "kexes.v1.kopf.dev"),
    ((), {"shortcut": "kx"}, "kexes.v1.kopf.dev"),
    ((), {"group": "kopf.dev", "version": "v1beta1", "shortcut": "kx"}, "kexes.v1beta1.kopf.dev"),
    ((lambda resource: "kx" in resource.shortcuts,), {}, "kexes.v1.kopf.dev"),
    # Core resources have the priority over all others of the same name; these are served by their group.
    *(
        (args, {}, "pods.v1")
        for args in [("pods",), ("pod",), ("Pod",), ("po",), ("v1", "pods"), ("", "v1", "pods"), ("pods.v1",)]
    ),
    (("v1", "po"), {}, "pods.v1"),
    (("metrics.example.com", "pods"), {}, "pods.v1.metrics.example.com"),
    (("pods.metrics.example.com",), {}, "pods.v1.metrics.example.com"),
    # All resources of a category or of a group are served, and there is no ambiguity in that.
    ((), {"category": "kopfcat"}, "kexes.v1.kopf.dev rivals.v1.example.com"),
    *(
        ((*group, kopf.EVERYTHING), {}, "kexes.v1.kopf.dev kopfexamples.v1.kopf.dev")
        for group in [("kopf.dev", "v1"), ("kopf.dev/v1",), ("kopf.dev",)]
    ),
    # Kubernetes events are served when they are named.
    *((args, {}, "events.v1") for args in [("v1", "events"), ("events.v1",), ("", "v1", "events")]),
]


async def test_every_notation(operator: Operator, api: API, kex: Objects, calls: Calls) -> None:
    define(operator.cluster, "pods", group="metrics.example.com", kind="Pod", shortNames=["po"])
    for number, (args, options, _expected) in enumerate(NOTATIONS):
        note(calls, *args, **options, what=number)
    await operator.start(watching=("kexes", "kopfexamples", "pods", "rivals", "events"))
    await kex.create()
    await create(api, "rivals", "other", group="example.com")
    await create(api, "pods", "other", group="metrics.example.com")
    await create(api, "pods", "obj", group="", spec={"containers": [{"name": "main", "image": "x"}]})
    reference = {"kind": "Pod", "namespace": "default", "name": "x"}
    await create(api, "events", "event", group="", involvedObject=reference)
    await create(api, "kexes", "obj")
    wanted = [(number, name) for number, (*_, names) in enumerate(NOTATIONS) for name in names.split()]
    await calls.wait_length(len(wanted))
    assert sorted(set(calls)) == wanted


async def test_ambiguous_names_are_not_served_and_a_warning_is_issued(
    operator: Operator,
    api: API,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    define(operator.cluster, "kexes", group="example.com", kind="Kexe")
    note(calls, "kexes")

    kopf.on.create("kopfexamples")(do_nothing)
    await operator.start()
    record = await logs.wait(".*'kexes'.*ambiguous.*kexes.v1.example.com.*kexes.v1.kopf.dev.*")
    assert record.levelname == "WARNING"
    await create(api, "kexes", "a")
    await create(api, "kexes", "b", group="example.com")
    await kex.create_and_wait()
    assert calls == []


async def test_everything_in_the_cluster_except_for_events(
    operator: Operator,
    api: API,
    kex: Objects,
    calls: Calls,
) -> None:
    note(calls, kopf.EVERYTHING, labels={"only-this": kopf.PRESENT})
    await operator.start(watching=("kexes", "rivals", "pods", "configmaps"))
    metadata = {"labels": {"only-this": ""}}
    reference = {"kind": "Pod", "namespace": "default", "name": "x"}
    await create(api, "events", "event", group="", metadata=metadata, involvedObject=reference)
    await create(api, "configmaps", "skipped", group="")
    await create(api, "configmaps", "map", group="", metadata=metadata)
    await create(api, "kexes", "obj", metadata=metadata)
    await create(api, "rivals", "obj", group="example.com", metadata=metadata)
    await calls.wait_length(3)
    assert sorted(calls) == ["configmaps.v1", "kexes.v1.kopf.dev", "rivals.v1.example.com"]
    assert not any(key[:2] == ("watch", "events") for key in operator.cluster.counters)


async def test_overlapping_specifications_call_the_function_once(
    operator: Operator,
    api: API,
    kex: Objects,
    calls: Calls,
) -> None:
    for kind, decorator in {"event": kopf.on.event, "create": kopf.on.create, "daemon": kopf.daemon}.items():

        async def fn(name: str, kind: str = kind, **_: Any) -> None:
            calls.append((kind, name))

        for args in [("kopfexamples",), ("kopf.dev", "kopfexamples"), ("kopf.dev", kopf.EVERYTHING)]:
            decorator(*args, id=kind)(fn)

    await operator.start_and_handle(kex)
    await calls.wait(lambda items: ("daemon", "obj") in items)
    version = (await kex.get())["metadata"]["resourceVersion"]
    await kex.wait_seen(lambda obj: obj["metadata"]["resourceVersion"] == version)
    events = len({obj["metadata"]["resourceVersion"] for obj in kex.get_history()})
    await calls.wait(lambda items: items.count(("event", "obj")) >= events)
    assert [calls.items.count((kind, "obj")) for kind in ("event", "create", "daemon")] == [events, 1, 1]


@pytest.mark.parametrize("kind", ["label_selectors", "field_selectors"])
async def test_the_server_can_be_asked_for_some_objects_only(
    operator: Operator,
    api: API,
    calls: Calls,
    kind: str,
) -> None:
    """It is by the settings, for each resource separately."""
    fn = calls.noting(lambda name, resource, **_: (resource.plural, name))
    kopf.on.event("rivals")(fn)
    kopf.on.event("kexes")(fn)
    selector = "match=yes" if kind == "label_selectors" else "metadata.name=good"
    operator.set(f"watching.{kind}", {"kexes.kopf.dev": selector})
    await create(api, "kexes", "before")
    await operator.start(watching=("kexes", "rivals"))
    await create(api, "kexes", "bad")
    await create(api, "kexes", "good", metadata={"labels": {"match": "yes"}})
    await create(api, "rivals", "any", group="example.com")
    await calls.wait_length(2)
    assert sorted(calls) == [("kexes", "good"), ("rivals", "any")]


async def test_resources_that_cannot_be_watched(operator: Operator, kex: Objects, calls: Calls, logs: Logs) -> None:
    """Some resources are rather functions of the API; it is said if they are named explicitly."""
    fn = calls.noting(lambda name, **_: name)
    kopf.on.event("kopfexamples")(fn)
    kopf.on.event("authentication.k8s.io", kopf.EVERYTHING)(fn)
    kopf.on.event("authentication.k8s.io", "v1", "tokenreviews")(fn)
    await operator.start_and_create(kex)
    await calls.wait_length(1)
    (message,) = logs.get_messages(level=30)
    assert message == (
        "tokenreviews.v1.authentication.k8s.io cannot be served: its API cannot list & watch, only create."
    )


async def test_similar_resources_are_suggested(operator: Operator, calls: Calls, logs: Logs) -> None:
    """Also from the API groups that are not needed for anything else."""
    both = "There is 'kexes' of kopf.dev/v1 or 'kexes' of kopf.dev/v1beta1, but"
    suggestions = {
        ("kexs",): r"Did you mean 'kexes' of kopf.dev/v1\?",
        ("kopf.dev", "Kexee"): r"Did you mean 'kexes' of kopf.dev/v1\?",
        ("kopf.dev", "rivls"): r"Did you mean 'rivals' of example.com/v1\?",
        ("kopf.dev/v2", "kx"): rf"{both} kopf.dev/v2 is asked for\.",
        ("kopf.org", "kexes"): rf"{both} kopf.org is asked for\.",
    }
    for args in suggestions:
        note(calls, *args, what=args)
    await operator.launch()
    for (*_, name), suggestion in suggestions.items():
        record = await logs.wait(
            rf"No resource is found for '{name}'.*\. {suggestion} It will be served as soon as it appears\."
        )
        assert record.levelname == "WARNING"


@pytest.mark.fastforward
@pytest.mark.parametrize("option", ["owns", "uses"])
async def test_absent_resources_of_others_are_named_with_their_place(
    operator: Operator, logs: Logs, option: str
) -> None:
    names = {"owns": ["deploymnets"]} if option == "owns" else {"uses": [kopf.ref("deploymnets", lambda **_: "x")]}

    @kopf.reconcile("kopfexamples", **names)
    async def reconcile(**_: Any) -> None: ...

    await operator.launch()
    place = rf"{option}= of .*reconcile \(.*test_resources\.py:\d+\)"
    await logs.wait(rf"No resource is found for 'deploymnets', which is in {place}\. Did you mean 'deployments'.*")


@pytest.mark.fastforward
async def test_nothing_is_suggested_if_the_cluster_does_not_say_what_it_has(
    operator: Operator,
    calls: Calls,
    logs: Logs,
) -> None:
    note(calls, "kopf.org", "kexes")
    operator.cluster.faults.inject(403, path="/apis$")
    await operator.launch()
    await logs.wait(r"No resource is found for 'kexes' of kopf.org\. It will be served as soon as it appears\.")
    assert operator.is_running
