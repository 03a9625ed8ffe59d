"""What comes in as a review, and what goes out as the answer."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

import kopf
from kopf._values.reviews import MalformedReviewError, ReviewError, UnknownResourceError, UnknownWebhookError
from tests.admission.reviewing import Reviewer, make_object, make_review, read_patch
from tests.behaviour.objects import API, Objects, get_patience
from tests.behaviour.peerings import PeeringObject, define_peering
from tests.behaviour.resources import define
from tests.behaviour.running import Calls, Logs, Operator, do_nothing, now
from tests.patience import PATIENCE

pytestmark = pytest.mark.fastforward


def declare(calls: Calls) -> None:
    @kopf.on.validate("kopfexamples", id="check")
    def check(operation: str, **_: Any) -> None:
        calls.append(operation)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_versions(reviewer: Reviewer, calls: Calls, version: str) -> None:
    declare(calls)
    response = await reviewer.review(version=version, webhook="check")
    assert response == {"allowed": True}
    assert calls == ["CREATE"]


@pytest.mark.parametrize("absent", ["object", "oldObject", "dryRun", "options", "userInfo", "kind", "requestKind"])
async def test_optional_fields(reviewer: Reviewer, calls: Calls, absent: str) -> None:
    declare(calls)
    for value in (None, ...):
        fields: dict[str, Any] = {absent: value}
        review = make_review("CONNECT", **fields)
        assert (await reviewer.ask(review))["response"]["allowed"]
    assert calls == ["CONNECT", "CONNECT"]


MALFORMED: list[Any] = [
    None,
    [],
    "",
    1,
    {},
    {"kind": "AdmissionReview"},
    {**make_review(), "kind": "ConversionReview"},
    {**make_review(), "apiVersion": "admission.k8s.io/v2"},
    {**make_review(), "request": None},
    {**make_review(), "request": "secret"},
    make_review(uid=None),
    make_review(uid=...),
    make_review(uid=1),
    make_review(operation="secret"),
    make_review("PATCH"),
    make_review(resource=None),
    make_review(resource=...),
    make_review(resource={"version": "v1"}),
    make_review(object="secret"),
    make_review(object=["secret"]),
    make_review(oldObject=1),
    make_review(userInfo="secret"),
    make_review(dryRun="secret"),
    make_review(name=["secret"]),
    make_review(namespace=1),
    make_review(subResource={}),
    make_review(object={"metadata": None}),
    make_review(object={"metadata": "secret"}),
    make_review(object={"metadata": {"labels": "secret"}}),
    make_review(object={"metadata": {"name": 1}}),
    make_review(object={"apiVersion": 1, "metadata": {}}),
]


async def test_malformed_reviews(reviewer: Reviewer, calls: Calls) -> None:
    declare(calls)
    for review in MALFORMED:
        with pytest.raises(MalformedReviewError) as caught:
            await reviewer.ask(review, webhook="check")
        assert caught.value.status == 400
        assert "secret" not in str(caught.value)
    assert calls == []
    assert await reviewer.review() == {"allowed": True}


async def test_unknown_webhooks(reviewer: Reviewer, calls: Calls) -> None:
    declare(calls)
    with pytest.raises(UnknownWebhookError, match="There is no admission handler 'other'") as caught:
        await reviewer.review(webhook="other")
    assert caught.value.status == 404
    assert isinstance(caught.value, ReviewError)
    assert calls == []


async def test_refusals_are_short(reviewer: Reviewer, calls: Calls) -> None:
    """They go to the logs, and anybody can send anything."""
    declare(calls)
    with pytest.raises(UnknownWebhookError) as caught_webhook:
        await reviewer.review(webhook="x" * 10_000)
    with pytest.raises(UnknownResourceError) as caught_resource:
        await reviewer.review(resource={"group": "x" * 1_000, "version": "v1", "resource": "y" * 1_000})
    assert len(str(caught_webhook.value)) < 300
    assert len(str(caught_resource.value)) < 300


@pytest.mark.parametrize(
    "change",
    [
        {"group": "unknown.dev"},
        {"version": "v2"},
        {"resource": "unknowns"},
        {"resource": "kopfstatusexamples"},
    ],
    ids=str,
)
async def test_unknown_resources(reviewer: Reviewer, calls: Calls, change: dict[str, str]) -> None:
    declare(calls)
    resource = {**make_review()["request"]["resource"], **change}
    with pytest.raises(UnknownResourceError, match="no admission handlers for the resource") as caught:
        await reviewer.review(resource=resource, webhook="check")
    assert caught.value.status == 404
    assert calls == []


@pytest.mark.parametrize(("version", "expected"), [(None, ["v1", "v2"]), ("v1", ["v1"])], ids=str)
async def test_versions_that_are_no_longer_preferred(
    reviewer: Reviewer, operator: Operator, calls: Calls, logs: Logs, version: str | None, expected: list[str]
) -> None:
    """API servers send the former version until they notice the new configuration, which takes a moment."""
    versioned: dict[str, Any] = {} if version is None else {"version": version}
    kopf.on.event("temps")(do_nothing)
    kopf.on.validate("temps", **versioned)(calls.noting(lambda resource, **_: resource.version))
    define(operator.cluster, "temps", versions=("v1",))
    resource = {"group": "kopf.dev", "version": "v1", "resource": "temps"}
    await operator.start(watching=("temps",))
    assert (await reviewer.review(resource=resource))["allowed"]
    define(operator.cluster, "temps", versions=("v1", "v2"))
    await logs.wait("Starting the watch-stream for temps.v2.kopf.dev.*")
    calls.items.clear()
    await is_reviewed(reviewer, resource)
    await is_reviewed(reviewer, {**resource, "version": "v2"})
    assert calls == expected


async def is_reviewed(reviewer: Reviewer, resource: dict[str, str]) -> bool:
    try:
        await reviewer.review(resource=resource)
    except UnknownResourceError:
        return False
    return True


async def test_the_object_is_not_changed(reviewer: Reviewer) -> None:
    @kopf.on.mutate("kopfexamples")
    def fill(patch: kopf.Patch, **_: Any) -> None:
        patch.spec["other"] = {"x": 1}
        patch.fns.append(lambda body: body["spec"].update(field="changed"))

    review = make_review("UPDATE", make_object({"field": "new"}))
    original = copy.deepcopy(review)
    assert len(read_patch((await reviewer.ask(review))["response"])) == 2
    assert review == original


async def test_the_reviews_wait_until_the_indices_are_filled(
    operator: Operator,
    reviewer: Reviewer,
    calls: Calls,
    kex: Any,
) -> None:
    @kopf.index("kopfexamples")
    async def by_name(name: str, **_: Any) -> dict[str, int]:
        await asyncio.sleep(5)
        return {name: 1}

    @kopf.on.validate("kopfexamples", id="check")
    def check(by_name: kopf.Index[str, int], **_: Any) -> None:
        calls.append(sorted(by_name))

    await kex.create("a")
    await kex.create("b")
    await reviewer.start()
    assert await reviewer.review() == {"allowed": True}
    assert calls == [["a", "b"]]


async def test_handlers_are_called_in_parallel(reviewer: Reviewer) -> None:
    barrier = asyncio.Barrier(2)

    @kopf.on.validate("kopfexamples")
    async def first(**_: Any) -> None:
        await barrier.wait()

    @kopf.on.mutate("kopfexamples")
    async def second(**_: Any) -> None:
        await barrier.wait()

    assert await reviewer.review() == {"allowed": True}


@pytest.mark.fastforward("exit")  # the clock stands still while threads work
async def test_synchronous_handlers_do_not_block_the_loop(reviewer: Reviewer) -> None:
    loop = asyncio.get_running_loop()

    @kopf.on.validate("kopfexamples", id="check")
    def check(**_: Any) -> None:
        future = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "alive"), loop)
        assert future.result(timeout=PATIENCE) == "alive"

    assert await reviewer.review() == {"allowed": True}


@pytest.mark.parametrize("is_ignored", [False, True])
async def test_slow_handlers_are_cancelled_when_nobody_waits_for_them(
    reviewer: Reviewer,
    calls: Calls,
    *,
    is_ignored: bool,
) -> None:
    @kopf.on.validate("kopfexamples", ignore_failures=is_ignored, id="check")
    async def check(**_: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise

    await reviewer.start()
    started = asyncio.get_running_loop().time()
    response = await reviewer.review()
    assert asyncio.get_running_loop().time() - started == pytest.approx(30, abs=5)
    assert response == {
        "allowed": False,
        "status": {"message": "The handlers have not finished in 30 seconds.", "code": 504},
    }
    assert calls == ["cancelled"]


async def test_handlers_are_cancelled_with_the_call(reviewer: Reviewer, calls: Calls) -> None:
    for id in ("a", "b"):

        @kopf.on.validate("kopfexamples", id=id)
        async def check(**_: Any) -> None:
            calls.append("started")
            try:
                await asyncio.Event().wait()
            finally:
                calls.append("ended")

    await reviewer.start()
    task = asyncio.create_task(reviewer.review())
    await calls.wait_length(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(calls) == ["started", "started", "ended", "ended"]


async def test_own_timeouts_of_handlers_are_their_errors(reviewer: Reviewer) -> None:
    @kopf.on.validate("kopfexamples", id="check")
    async def check(**_: Any) -> None:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()

    response = await reviewer.review()
    assert response == {
        "allowed": False,
        "status": {"message": "Webhook 'check' has failed; see the log of the operator.", "code": 500},
    }


async def test_log_lines(reviewer: Reviewer, logs: Logs) -> None:
    @kopf.on.validate("kopfexamples", id="good")
    def good(**_: Any) -> None: ...

    @kopf.on.validate("kopfexamples", id="bad")
    def bad(**_: Any) -> None:
        raise kopf.AdmissionError("no!")

    await reviewer.review(webhook="good")
    await reviewer.review(webhook="bad")
    lines = [line for line in logs.get_messages("obj") if line.startswith("Webhook")]
    assert lines == [
        "Webhook 'good' is invoked.",
        "Webhook 'good' succeeded.",
        "Webhook 'bad' is invoked.",
        "Webhook 'bad' denied the change: no!",
    ]


async def test_nothing_is_posted_as_events(operator: Operator, reviewer: Reviewer, api: Any) -> None:
    """A review has no side effects, and the object may never exist."""

    def configure(settings: kopf.OperatorSettings) -> None:
        reviewer.configure(settings)
        settings.posting.enabled = True

    @kopf.on.validate("kopfexamples", id="check")
    def check(logger: kopf.Logger, **_: Any) -> None:
        logger.error("hello")
        raise kopf.AdmissionError("no!")

    operator.configure = configure
    response = await reviewer.review()
    assert not response["allowed"]
    await operator.stop()
    assert await api.list_events() == []


async def test_reviews_of_paused_operators(reviewer: Reviewer, operator: Operator, api: API, kex: Objects) -> None:
    """They do not wait for the indices: nobody knows when those are filled. When it goes on, they do."""
    kopf.index("kopfexamples", id="idx")(lambda name, **_: {name: name})

    @kopf.on.validate("kopfexamples")
    def check(idx: kopf.Index[str, str], warnings: list[str], **_: Any) -> None:
        warnings.extend(idx)

    define_peering(operator.cluster)
    peering = PeeringObject(api)
    await peering.create()
    await peering.put("freezer", priority=1000, lifetime=1e6)
    await kex.create("known")
    await reviewer.start(peering_name="default")
    before = now()
    assert await reviewer.review() == {"allowed": True}
    assert now() - before < 10
    await peering.remove("freezer")
    async with asyncio.timeout(get_patience()):
        while await reviewer.review() != {"allowed": True, "warnings": ["known"]}:
            await asyncio.sleep(0.1)
