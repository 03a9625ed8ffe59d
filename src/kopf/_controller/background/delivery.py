"""Delivery: how the changes that a daemon or a timer wants in its object get there, in spite of passing problems."""

from __future__ import annotations

from typing import Protocol

from kopf._client.errors import APINetworkError, APIServerError, APITooManyRequestsError
from kopf._client.resources.patching import PatchConflict, patch_object
from kopf._controller.background.stopping import AsyncDaemonStopperChecker, DaemonStopper
from kopf._controller.error_texts import describe_error
from kopf._controller.runtime import Runtime
from kopf._handlers.handlers import SpawningHandler
from kopf._logging.loggers import ObjectLogger
from kopf._settings.settings import iter_delays
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch
from kopf._values.resources import Resource


class Recipient(Protocol):
    """The object that is patched, as it is known now."""

    runtime: Runtime
    resource: Resource
    body: Body
    is_gone: bool
    logger: ObjectLogger

    def refresh(self, obj: KubeObject) -> None:
        """Take the new state."""


async def deliver_patch(recipient: Recipient, handler: SpawningHandler, patch: Patch, stopper: DaemonStopper) -> None:
    """
    Patch the object: in case of a conflict, on its fresh state; in case of passing problems, as long as they last.

    What the API refuses is dropped. If the handler is asked to stop meanwhile, there is only one attempt left.
    """
    runtime, logger = recipient.runtime, recipient.logger
    delays = iter(iter_delays(runtime.settings.queueing.error_delays))
    delay = 0.0
    is_last = False
    while patch and not recipient.is_gone:
        try:
            obj = await patch_object(runtime.api, recipient.resource, recipient.body.object, patch, logger=logger)
        except (PatchConflict, APIServerError, APITooManyRequestsError, APINetworkError) as e:
            if is_last:
                logger.error("%s exits with its patch not applied: %s", handler, e)
                return
            delay = next(delays, delay)
            log = logger.debug if isinstance(e, PatchConflict) else logger.error
            log("%s could not patch the object, and will try again in %s seconds: %s", handler, delay, e)
            is_last = stopper.is_set or await AsyncDaemonStopperChecker(stopper).wait(delay)
        except Exception as e:
            text = "%s has made a patch that cannot be applied, it is lost: %s"
            reason, culprit = describe_error(e)
            logger.error(text, handler, reason, exc_info=culprit)
            return
        else:
            if obj is not None:
                recipient.refresh(obj)
            return
