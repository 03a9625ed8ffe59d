"""The messages of the usual mistakes & misfortunes: each is said once, and says what to do."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from typing import Any

import pytest

import kopf
from kopf_cluster import LocalCluster
from tests.behaviour.objects import Objects, is_handled
from tests.behaviour.peerings import make_other, running
from tests.behaviour.running import Calls, Logs, Operator, do_nothing
from tests.patience import PATIENCE

PLURAL = "kopfstatusexamples"


CURES = {
    "spec['x'] = 1": "'Spec' object does not support item assignment. "
    'To change the object, use `patch.spec["x"] = 1`.',
    "del status['x']": "'Status' object does not support item deletion. "
    'To change the object, use `patch.status["x"] = None`.',
    "meta.labels['x'] = 'y'": "`patch.meta.labels[\"x\"] = 'y'`.",
    "labels['x'] = 'y'": "`patch.meta.labels[\"x\"] = 'y'`.",
    "annotations['x'] = 'y'": "`patch.meta.annotations[\"x\"] = 'y'`.",
    "meta['x'] = 'y'": "`patch.meta[\"x\"] = 'y'`.",
    "body['spec'] = {}": '`patch["spec"] = {}`.',
}


async def test_changes_of_what_is_read_only(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", id="fn", errors=kopf.ErrorsMode.PERMANENT)
    async def fn(**kwargs: Any) -> None:
        exec(kwargs["spec"]["change"], kwargs)

    await operator.start()
    for number, (change, cure) in enumerate(CURES.items()):
        name = f"obj{number}"
        await kex.create_and_wait(name, spec={"change": change})
        [message] = logs.get_messages(name, level=40)
        assert message.startswith("Handler 'fn' failed with an exception and will stop now: TypeError: ")
        assert message.endswith(cure)


async def test_failing_callbacks_of_delays(operator: Operator, kex: Objects, logs: Logs) -> None:
    kopf.timer("kopfexamples", id="tick", interval=1, initial_delay=lambda spec, **_: spec["nosuch"])(do_nothing)
    logs.expected.append("has failed")
    await operator.start_and_create(kex)
    record = await logs.wait("The object could not be handled.*")
    assert re.search(
        rf"The callback \S*<lambda> \({re.escape(__file__)}:\d+\) in initial_delay= of Timer 'tick' has failed: "
        r"KeyError: 'nosuch'$",
        record.getMessage(),
    )
    assert record.exc_info


def _add_item(body: Any) -> None:
    body["spec"]["items"].append("ours")


_WHERE = re.escape(f"{__file__}:{_add_item.__code__.co_firstlineno}")


@pytest.mark.fastforward
async def test_failing_transformations(operator: Operator, kex: Objects, logs: Logs) -> None:
    def fn(patch: kopf.Patch, **_: Any) -> None:
        patch.fns.append(_add_item)

    kopf.on.create("kopfexamples", id="change")(fn)
    kopf.on.event("kopfexamples", id="event")(fn)
    kopf.timer("kopfexamples", id="timer", interval=1000)(fn)
    logs.expected.append("_add_item")
    await operator.start_and_create(kex, spec={})
    for handler, prefix in {
        "Handler 'change'": "The object could not be handled, so it is left alone for 1 seconds: ",
        "Handler 'event'": "The event could not be handled, and is skipped: ",
        "Timer 'timer'": "Timer 'timer' has made a patch that cannot be applied, it is lost: ",
    }.items():
        cause = rf"The callback _add_item \({_WHERE}\) in patch.fns of {handler} has failed: KeyError: 'items'"
        record = await logs.wait(prefix + cause)
        assert record.levelname == "ERROR"
        assert record.exc_info is not None
        assert record.exc_info[0] is KeyError


@pytest.mark.fastforward
async def test_failing_transformations_of_parents_and_children(operator: Operator, kex: Objects, logs: Logs) -> None:
    fails = {"parent": True}

    @kopf.on.create("kopfexamples", id="parent")
    async def parent(patch: kopf.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["metadata"]["no-parent"] if fails["parent"] else None)

        @kopf.subhandler(id="child")
        async def child(patch: kopf.Patch, **_: Any) -> None:
            patch.fns.append(lambda body: body["metadata"]["no-child"])

    logs.expected.append("patch.fns")
    await operator.start_and_create(kex)
    await logs.wait(".*in patch.fns of Handler 'parent' has failed: KeyError: 'no-parent'")
    fails["parent"] = False
    await logs.wait(".*in patch.fns of Handler 'parent/child' has failed: KeyError: 'no-child'")


async def test_failing_lifecycles(operator: Operator, kex: Objects, logs: Logs) -> None:
    def choose(*_: Any, **__: Any) -> Any:
        raise KeyError("nosuch")

    kopf.on.create("kopfexamples", id="one")(lambda **_: None)
    kopf.on.create("kopfexamples", id="two")(lambda **_: None)
    logs.expected.append("has failed")
    await operator.start(lifecycle=choose)
    await kex.create()
    record = await logs.wait("The object could not be handled.*")
    assert re.search(
        rf"The callback \S*choose \({re.escape(__file__)}:\d+\) in the choice of handlers \(creation\) "
        r"has failed: KeyError: 'nosuch'$",
        record.getMessage(),
    )


@pytest.mark.parametrize("storage", [kopf.AnnotationsDiffBaseStorage(), None])
async def test_objects_that_do_not_fit_into_annotations(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    storage: kopf.DiffBaseStorage | None,
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        settings.persistence.diffbase_storage = storage or kopf.AnnotationsDiffBaseStorage(ignored_fields=["spec.data"])

    kopf.on.create("kopfexamples")(do_nothing)
    operator.configure = configure
    logs.expected.append("Too long")
    await operator.start_and_create(kex, spec={"data": "x" * 300_000, "small": 1})
    if storage is None:  # what the message says, helps
        name = "kopf.zalando.org/last-handled-configuration"
        await kex.wait(lambda obj: name in obj["metadata"].get("annotations", {}))
        return
    record = await logs.wait("The object could not be handled.*Too long.*")
    message = record.getMessage()
    assert "its largest field is 'spec.data' (293 KiB)" in message
    assert "ignored_fields=['spec.data'] of settings.persistence.diffbase_storage" in message
    assert "kopf.StatusDiffBaseStorage()" in message


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("times", "interval", "is_said"),
    [
        (3, 130, True),
        (6, 130, True),
        (2, 130, False),  # a rollout has two: in the beginning and in the end of every process
        (8, 10, False),  # a longer rollout
        (4, 4000, False),  # rollouts, with no connection to each other
    ],
)
async def test_two_operators(
    operator: Operator,
    cluster: LocalCluster,
    objects: Objects,
    registry: kopf.OperatorRegistry,
    logs: Logs,
    times: int,
    interval: float,
    is_said: bool,
) -> None:
    other = make_other(registry)
    for item, delay in ((registry, 1.0), (other, 0)):

        @kopf.on.create(objects.plural, registry=item)
        @kopf.on.update(objects.plural, registry=item)
        async def handle(delay: float = delay, **_: Any) -> None:
            await asyncio.sleep(delay)

    await operator.start(watching=(objects.plural,))
    async with running(cluster, other):
        await objects.create(spec={"field": 0})
        await asyncio.sleep(5000)
        for number in range(1, times + 1):
            await objects.merge({"spec": {"field": number}})
            await asyncio.sleep(interval)
        await objects.wait(is_handled)
    found = logs.find("Another operator keeps handling the same objects of .*")
    assert len(found) == is_said
    if is_said:
        assert re.search(
            r"e\.g\. default/obj: .*"
            r" This operator is \S+@\S+ \(process \d+\); the other one writes as 'kopf' \(last time at "
            r"20\S+Z\)\. .* kopf explain \S+ obj -n default\. .* peering.* selectors.*settings\.persistence\. "
            r"See docs/peering\.md#two-operators-at-once$",
            found[0].getMessage(),
        )


@pytest.mark.fastforward
async def test_what_is_handled_by_others_before_it_is_noticed_here(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    fn = calls.noting(lambda spec, **_: spec["field"])
    kopf.on.update("kopfexamples")(fn)
    kopf.on.create("kopfexamples")(fn)
    await operator.start_and_handle(kex, spec={"field": 0})
    for number in range(1, 4):
        await asyncio.sleep(130)
        mark = f'{{"spec":{{"field":{number}}}}}\n'
        marks = {"kopf.zalando.org/last-handled-configuration": mark}
        await kex.merge({"spec": {"field": number}, "metadata": {"annotations": marks}})
    await logs.wait("Another operator keeps handling the same objects of .*")
    assert calls == [0]


@pytest.mark.fastforward
async def test_own_writes_are_not_taken_for_those_of_others(operator: Operator, sub: Objects, logs: Logs) -> None:
    @kopf.on.create(PLURAL, id="one")
    @kopf.on.update(PLURAL, id="one")
    @kopf.on.create(PLURAL, id="two")
    @kopf.on.update(PLURAL, id="two")
    @kopf.on.delete(PLURAL, id="three")
    async def fn(patch: kopf.Patch, spec: kopf.Spec, **_: Any) -> int:
        patch.status["seen"] = spec["field"]
        patch.meta.labels["seen"] = str(spec["field"])
        patch.fns.append(lambda body: body["spec"].__setitem__("own", body["spec"]["field"]))
        return int(spec["field"])

    await operator.start_and_create(sub, spec={"field": 0})
    for number in range(1, 10):
        await sub.wait(is_handled)
        await asyncio.sleep(130)
        await sub.merge({"spec": {"field": number % 2}})
    await sub.wait(is_handled)
    assert not logs.find("Another operator .*")


async def test_synchronous_functions_that_hang_at_the_exit(operator: Operator, kex: Objects, logs: Logs) -> None:
    release = threading.Event()

    @kopf.on.create("kopfexamples", id="fn")
    def fn(logger: kopf.Logger, **_: Any) -> None:
        logger.info("It hangs.")
        release.wait()  # this line is in the log

    operator.set("queueing.exit_timeout", 0.1)
    await operator.start_and_create(kex)
    await logs.wait("It hangs.")
    try:
        async with asyncio.timeout(PATIENCE):
            await operator.stop()
    finally:
        release.set()
    [warning] = logs.find("Handler 'fn' does not end, so it is abandoned.*")
    assert logs.get_messages("obj", level=30) == [warning.getMessage()]
    [details] = logs.find("Handler 'fn' is executed at: .*")
    assert details.levelname == "DEBUG"
    assert re.search(rf"fn\(\) at {re.escape(__file__)}:\d+: release\.wait\(\)  # this line", details.getMessage())


@pytest.mark.fastforward
async def test_handlers_that_run_for_long(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", id="long")
    async def long_fn(**_: Any) -> None:
        await asyncio.sleep(500)

    @kopf.on.create("kopfexamples", id="short")
    async def short_fn(**_: Any) -> None:
        await asyncio.sleep(59)

    @kopf.daemon("kopfexamples", id="daemon")
    async def daemon_fn(stopped: kopf.AsyncDaemonStopperChecker, **_: Any) -> None:
        await stopped.wait()

    await operator.start_and_create(kex)
    await kex.wait(is_handled)
    found = logs.find(".* has been running for .*")
    assert [record.getMessage() for record in found] == [
        f"Handler 'long' has been running for {seconds} seconds." for seconds in (60, 120, 240, 480)
    ]
    assert all(record.levelname == "INFO" and getattr(record, "k8s_skip", False) for record in found)


async def test_results_with_no_json_form(operator: Operator, kex: Objects, logs: Logs) -> None:
    def fn(**_: Any) -> Any:
        return {"lock": threading.Lock()}

    kopf.on.create("kopfexamples", id="create")(fn)
    kopf.on.event("kopfexamples", id="event", when=lambda type, **_: type == "ADDED")(fn)
    kopf.timer("kopfexamples", id="timer")(fn)
    await operator.start_and_create(kex)
    for text in ("Handler 'create'", "Handler 'event'", "Timer 'timer'"):
        await logs.wait(f"{text} succeeded.*")
        messages = [message for message in logs.get_messages("obj") if message.startswith(f"{text} ")]
        assert len([message for message in messages if "invoked" not in message]) == 1, messages
        reason = "its result is not stored in the status, as it has no JSON form: TypeError: .*lock.*"
        assert re.fullmatch(f"{text} succeeded, but {reason}", messages[-1])


async def test_successes_of_timers_are_not_posted(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    cluster: LocalCluster,
) -> None:
    kopf.timer("kopfexamples", id="tick", interval=0.01)(calls.noting("called"))
    await operator.start_and_call(kex, calls, times=5)
    assert (await logs.wait("Timer 'tick' succeeded.")).levelname == "DEBUG"
    await operator.stop()
    assert not await cluster.aio.list("events")


async def test_no_time_is_wasted() -> None:
    """The notes about each attempt are cheap: a few calls."""
    from kopf._handlers.attempts import RunningAttempts

    running_attempts = RunningAttempts()
    handler: Any = object()
    calls: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        for _ in range(100):
            running_attempts.leave(running_attempts.enter(handler, handler))
    finally:
        sys.setprofile(None)
    running_attempts.stop()
    assert calls.count("call") + calls.count("c_call") < 1000
