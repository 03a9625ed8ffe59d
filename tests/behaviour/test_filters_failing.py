"""Callbacks of filters: they see the whole object, and their failures affect only their own handlers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kopf
from tests.behaviour.objects import FINALIZER, Objects, get_finalizers
from tests.behaviour.running import Calls, Logs, Operator, now

pytestmark = pytest.mark.fastforward


async def test_callbacks_see_the_whole_change_after_the_field_is_checked(
    operator: Operator,
    kex: Objects,
    calls: Calls,
) -> None:
    def when(old: Any, new: Any, diff: kopf.Diff, **_: Any) -> bool:
        calls.append(("when", old and old["spec"], new["spec"], [field for _, field, _, _ in diff]))
        return True

    kopf.on.field("kopfexamples", id="fn", field="spec.field", when=when)(
        calls.noting(lambda old, new, diff, **_: (old, new, diff))
    )
    await operator.start_and_create(kex, "other", spec={"unrelated": 1})
    await kex.create_and_wait()
    assert set(map(str, calls)) == {
        "('when', None, {'field': 'value'}, [()])",
        "(None, 'value', (('add', (), None, 'value'),))",
    }


@pytest.mark.parametrize("option", ["when", "labels", "annotations", "value", "old", "new"])
async def test_a_failing_callback_is_named_and_does_not_affect_other_handlers(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    option: str,
) -> None:
    def broken_check(*_: Any, **__: Any) -> bool:
        return bool(dict[str, bool]()["nosuch"])

    filters: dict[str, Any] = {option: broken_check}
    if option in ("labels", "annotations"):
        filters = {option: {"key": broken_check}}
    elif option != "when":
        filters["field"] = "spec.field"

    kopf.on.update("kopfexamples", id="broken", **filters)(calls.noting("broken"))
    fn = calls.noting(lambda reason, **_: str(reason))
    kopf.on.update("kopfexamples", id="update")(fn)
    kopf.on.create("kopfexamples", id="create")(fn)
    logs.expected.append("broken_check")
    await operator.start_and_call(kex, calls)
    await kex.wait_handled()
    await kex.merge({"spec": {"field": "other"}})
    await calls.wait_length(2)
    await kex.wait_handled(field="other")
    assert calls == ["create", "update"]
    errors = logs.find(".*broken_check.*")
    message = errors[0].getMessage()
    assert "Handler 'broken" in message
    assert f"{option}=" in message
    assert __file__ in message
    assert "KeyError: 'nosuch'" in message


@pytest.mark.parametrize("error", [ConnectionError, asyncio.CancelledError])
async def test_a_passing_failure_of_a_callback_skips_nothing(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
    error: type[BaseException],
) -> None:
    """E.g. the result of a cancelled task is a cancellation."""
    attempts: list[int] = []

    def flaky(**_: Any) -> bool:
        attempts.append(1)
        if len(attempts) < 5:
            raise error("the registry is down")
        return True

    kopf.on.create("kopfexamples", id="flaky", when=flaky)(calls.noting("flaky"))
    kopf.on.create("kopfexamples", id="other")(calls.noting("other"))
    logs.expected.append("the registry is down")
    await operator.start_and_handle(kex)
    assert calls == ["other", "flaky"]


async def test_nothing_is_deleted_while_the_filter_of_its_deletion_handler_fails(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    is_broken = True

    def check(**_: Any) -> bool:
        if is_broken:
            raise ConnectionError("the registry is down")
        return True

    kopf.on.delete("kopfexamples", when=check)(calls.noting("deleted"))
    logs.expected.append("the registry is down")
    await kex.create(finalizers=[FINALIZER])
    await kex.delete()
    await operator.start()
    await logs.wait(".*(left alone|the registry is down).*", times=20)
    assert get_finalizers(await kex.get()) == [FINALIZER]
    is_broken = False
    await kex.wait_gone()
    assert calls == ["deleted"]


async def test_raw_events_and_daemons_with_failing_filters(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    def broken_check(**_: Any) -> bool:
        raise ConnectionError("the registry is down")

    broken = calls.noting("broken")
    kopf.daemon("kopfexamples", when=broken_check, id="broken")(broken)
    kopf.on.event("kopfexamples", when=broken_check, id="broken")(broken)
    kopf.on.event("kopfexamples", id="fine")(calls.noting("event"))
    kopf.daemon("kopfexamples", id="daemon")(calls.accompanying("daemon"))
    logs.expected.append("the registry is down")
    await operator.start_and_create(kex)
    await calls.wait(lambda items: {"event", "daemon"} <= set(items))
    await kex.delete_and_wait()
    assert "broken" not in calls.items


async def test_failing_filters_do_not_delay_the_deletion_when_daemons_have_exited(
    operator: Operator,
    kex: Objects,
    logs: Logs,
    calls: Calls,
) -> None:
    def broken_check(**_: Any) -> bool:
        return bool(dict[str, bool]()["nosuch"])

    logs.expected.append("broken_check")

    @kopf.daemon("kopfexamples", when=broken_check)
    async def unknown(**_: Any) -> None:
        """It is not known whether it is for the object."""

    kopf.daemon("kopfexamples", id="polite")(calls.accompanying("started", lambda **_: now(), lasting=1))
    await operator.start_and_call(kex, calls)
    await logs.wait(".*left alone for 5 seconds.*")
    await kex.delete_and_wait()
    assert now() - calls[1] < 0.9
