"""The poster of Kubernetes events: creates and updates events in the cluster, and copes with refusals."""

from __future__ import annotations

import asyncio
import logging

from kopf._client.auth.credentials import LoginError
from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APINotFoundError
from kopf._client.http.api import APIClient
from kopf._events.event_records import EventRecord
from kopf._logging.once import Once
from kopf._settings.settings import PostingSettings
from kopf._values import codec
from kopf._values.permissions import format_advice
from kopf._values.resources import EVENTS

logger = logging.getLogger(__name__)

_DENIAL_BACKOFF = 60.0
"""The pause after a request that was not permitted, in seconds."""


class EventPoster:
    """Posts the events of one operator to the cluster. It never fails: errors are only logged."""

    def __init__(self, api: APIClient, settings: PostingSettings) -> None:
        self._api = api
        self._settings = settings
        self._denied_until: dict[tuple[str, str], float] = {}
        self._warnings = Once()

    async def post(self, record: EventRecord) -> None:
        """Create the event, or update its count if it exists already."""
        now = asyncio.get_running_loop().time()
        verb = "create" if record.name is None else "patch"
        key = (verb, record.namespace)
        if now < self._denied_until.get(key, 0):
            self._api.observer.event_dropped("error")
            return
        try:
            await (self._create(record) if record.name is None else self._update(record, record.name))
        except (APIError, APINetworkError, LoginError) as e:
            if isinstance(e, APIError) and e.is_namespace_gone:
                logger.debug("Events can no longer be posted in the namespace %r: %s", record.namespace, e)
            elif isinstance(e, APIForbiddenError):
                self._denied_until[key] = asyncio.get_running_loop().time() + _DENIAL_BACKOFF
                self._explain_denial(verb, record.namespace, e)
            else:
                level = logging.DEBUG if isinstance(e, APINetworkError) and e.is_told else logging.WARNING
                logger.log(level, "Failed to post an event for %r: %s", dict(record.latest.ref), e)
        except Exception:  # e.g. of values that cannot be serialised: one event must not stop the others
            logger.exception("Failed to post an event for %r.", dict(record.latest.ref))
        else:
            report = record.latest
            self._api.observer.event_posted(
                report.ref, report.type, report.reason, report.message, report.time.timestamp()
            )
            return
        self._api.observer.event_dropped("error")

    async def _create(self, record: EventRecord) -> None:
        path = EVENTS.get_url(namespace=record.namespace)
        event = record.make_event(self._settings)
        content = await self._api.post(path, payload=event, backoffs=record.latest.backoffs)
        record.name = codec.decode_answer(content)["metadata"]["name"]

    async def _update(self, record: EventRecord, name: str) -> None:
        path = EVENTS.get_url(namespace=record.namespace, name=name)
        try:
            await self._api.patch(path, payload=record.make_changes(), backoffs=record.latest.backoffs)
        except APINotFoundError:  # clusters do not keep events for long
            await self._create(record)

    def _explain_denial(self, verb: str, namespace: str, error: APIForbiddenError) -> None:
        if verb == "patch":
            problem = f"The counts of repeated events cannot be updated in the namespace {namespace!r}"
        else:
            problem = f"Events cannot be posted in the namespace {namespace!r}"
        if self._warnings.is_new((verb, namespace)):
            advice = format_advice(EVENTS, ("create", "patch"), namespace=namespace)
            logger.warning("%s: %s. %s. Or set settings.posting.enabled = False.", problem, error, advice)
