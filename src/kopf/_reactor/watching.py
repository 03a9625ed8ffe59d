"""Raw events: every event of the watch stream goes to the handlers that spy on them, one by one."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager

from kopf._client.patching import patch_object
from kopf._client.watch_machine import WatchEvent
from kopf._handlers.causes import WatchingCause
from kopf._handlers.context import executing
from kopf._handlers.errors import ErrorsMode
from kopf._handlers.filters import matches_field, matches_object
from kopf._handlers.handlers import WatchingHandler
from kopf._handlers.invocation import invoke
from kopf._handlers.outcomes import Attempt, deliver_result, execute_once
from kopf._handlers.registry import HandlersOfResource, deduplicate
from kopf._reactor.environment import Environment
from kopf._settings.logs import LocalObjectLogger
from kopf._values.bodies import Body
from kopf._values.events import LazyEvent
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource


async def handle_raw_event(
    env: Environment,
    resource: Resource,
    handlers: HandlersOfResource,
    event: WatchEvent,
    *,
    user_code: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> KubeObject | None:
    """
    Call the matching handlers for one event; their errors are logged and ignored.

    Returns the new state of the object if the handlers have patched it.
    """
    obj = event.object
    body = Body(obj)
    patch = Patch(body=body)
    cause = WatchingCause(
        logger=LocalObjectLogger(body=body, settings=env.settings),
        memo=env.memos.recall(obj.head.uid),
        indices=env.indices,
        resource=resource,
        body=body,
        patch=patch,
        event=LazyEvent(event.type, obj),
    )
    matching = (item for item in handlers.watching if matches_object(item, cause) and matches_field(item, cause))
    for handler in deduplicate(matching):
        await _call(env, handler, cause, user_code)
    if not patch or event.type == "DELETED":
        return None
    return await patch_object(env.api, resource, obj, patch, logger=cause.logger)


async def _call(
    env: Environment,
    handler: WatchingHandler,
    cause: WatchingCause,
    user_code: Callable[[], AbstractContextManager[None]],
) -> None:
    async def call() -> object:
        with executing(cause.body), user_code() if handler.is_async else contextlib.nullcontext():
            kwargs = {
                "retry": attempt.retry,
                "started": attempt.started,
                "runtime": attempt.runtime,
                **cause.kwargs_for(handler),
            }
            return await invoke(handler, kwargs, executor=env.settings.execution.executor)

    attempt = Attempt(retry=0, started=env.clock.now(), runtime=datetime.timedelta(0))
    outcome = await execute_once(
        handler,
        attempt,
        call,
        logger=cause.logger,
        default_backoff=env.settings.execution.default_backoff,
        default_errors=ErrorsMode.IGNORED,
    )
    deliver_result(handler, outcome, cause.patch, logger=cause.logger)
