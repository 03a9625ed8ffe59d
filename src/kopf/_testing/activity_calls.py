"""Calls of the handlers of the operator's own life: startup, cleanup, login, probes."""

from __future__ import annotations

import logging

from kopf._handlers.causes import ActivityCause
from kopf._handlers.handlers import ActivityHandler
from kopf._testing.handler_choice import list_reasons
from kopf._testing.handler_run import HandlerRun
from kopf._testing.scene import Scene
from kopf._values.patches import Patch


async def call_activity_handler(scene: Scene, handler: ActivityHandler) -> HandlerRun:
    """Call the handler: there is no object, so there is nothing to be patched."""
    logger = logging.getLogger(f"kopf.activities.{handler.activity.value}")
    cause = ActivityCause(**scene.make_common_kwargs(logger), activity=handler.activity, settings=scene.settings)
    mark = scene.mark()
    outcome = await scene.executor.execute(handler, cause, scene.attempt)
    return scene.make_run(handler, outcome, mark, reason=list_reasons(handler)[0], patch=Patch(), body={})
