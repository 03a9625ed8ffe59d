"""
Admission: takes reviews, calls the matching handlers, and makes the responses.

Every review gets a response, regardless of the handlers. Only malformed reviews raise an error, see
:class:`ReviewError`.

Reviews wait until the operator is ready for them, but no longer than the API servers wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kopf._admission.verdicts import judge
from kopf._admission.webhook_paths import WebhookPaths
from kopf._controller.observer import Review
from kopf._controller.runtime import Runtime
from kopf._handlers.attempts import Attempt
from kopf._handlers.causes import WebhookCause
from kopf._handlers.filters import matches_operation
from kopf._handlers.handlers import WebhookHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._logging.loggers import LocalObjectLogger
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.resources import Resource
from kopf._values.reviews import (
    Headers,
    MalformedReviewError,
    Response,
    ReviewRequest,
    SSLPeer,
    UnknownResourceError,
    UnknownWebhookError,
    decode_object,
    make_response,
    parse_review,
)

MAX_TIMEOUT = 30
"""The longest time that API servers can wait, in seconds. See "Timeouts" of webhooks."""

_TIMEOUT_CODE = 504


class AdmissionReadiness:
    """
    Makes reviews wait at the start of the operator and after its pauses, until it can respond to them.

    The operator must know the resources of the cluster, and must have filled its indices: a response from half of the
    data would be wrong. While the operator is paused, it does not fill the indices, for an unknown time. Then it
    responds with the available data.
    """

    def __init__(self, runtime: Runtime, settle_peering: Callable[[], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._settle_peering = settle_peering
        self._changed = asyncio.Event()
        self.discovered = asyncio.Event()
        """Set when the resources of the cluster are known."""
        runtime.pause.subscribe(self._changed.set)

    async def wait(self) -> None:
        """Wait until the operator can respond."""
        await self.discovered.wait()
        if not self._runtime.index_readiness.is_open:
            # At the start, the operator is on hold anyway, until it knows whether it is paused.
            await self._settle_peering()
        while not (self._runtime.index_readiness.is_open or self._runtime.pause.is_on):
            self._changed.clear()
            self._runtime.index_readiness.call_when_open(self._changed.set)
            await self._changed.wait()


class _Caller(NamedTuple):
    """The sender of the review."""

    headers: Headers
    sslpeer: SSLPeer


class Admission:
    """Responds to the reviews on behalf of one operator, for objects in any namespace."""

    def __init__(
        self, runtime: Runtime, registry: OperatorRegistry, settle_peering: Callable[[], Awaitable[None]]
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self.readiness = AdmissionReadiness(runtime, settle_peering)
        """Tells when the operator can respond."""
        self._paths = WebhookPaths(registry.webhooks)
        self._handlers: dict[Resource, tuple[Resource, Sequence[WebhookHandler]]] = {}
        self._handled: Collection[Resource] = ()
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def accept_resources(self, resources: Collection[Resource], handled: Collection[Resource]) -> None:
        """Take the resources of the cluster, and the ones that also have other handlers."""
        plan = self._registry.plan_webhooks(resources)
        others = _spread_to_other_versions(plan, resources)
        self._handlers = {resource: (resource, handlers) for resource, handlers in (*others, *plan.items())}
        self._handled = handled
        self.readiness.discovered.set()

    async def wait_until_idle(self) -> None:
        """Wait until all current reviews have responses."""
        await self._idle.wait()

    async def review(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> Response:
        """Respond to the review; see :class:`WebhookFn`."""
        parsed = parse_review(request)
        if webhook is not None and not self._paths.find(webhook):
            raise UnknownWebhookError(f"There is no admission handler {webhook!r:.200}.")
        self._active += 1
        self._idle.clear()
        observer, response = self._runtime.observer, None
        review = Review(webhook, headers or {}, bool(sslpeer), observer.clock())
        observer.review_begun(review)
        try:
            async with asyncio.timeout(MAX_TIMEOUT) as scope:
                await self.readiness.wait()
                response = await self._answer(request, parsed, webhook, _Caller(headers or {}, sslpeer or {}))
        except RecursionError:
            raise MalformedReviewError("The objects of the review are nested too deeply.") from None
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"The handlers have not finished in {MAX_TIMEOUT} seconds."
            response = make_response(request, parsed, denial={"message": message, "code": _TIMEOUT_CODE})
        finally:
            observer.review_ended(review, response)
            self._active -= 1
            if not self._active:
                self._idle.set()
        return response

    async def _answer(
        self,
        payload: Mapping[str, Any],
        request: ReviewRequest,
        webhook: str | None,
        caller: _Caller,
    ) -> Response:
        resource, handlers = self._select(request, webhook)
        if not handlers:
            return make_response(payload, request)
        old, new = (
            None if source is None else Body(source)
            for source in (decode_object(request.old_object), decode_object(request.object))
        )
        with self._recalling(request, resource, new if old is None else old) as memo:
            cause = self._make_cause(request, resource, old, new, memo, caller)
            attempt = Attempt.first(self._runtime.clock.now())
            is_shown = self._runtime.settings.admission.show_errors
            verdict = await judge(self._runtime.executor, cause, handlers, attempt, is_shown=is_shown)
            if verdict.denial is None and request.operation == "DELETE" and not request.dry_run:
                self._forget(resource, cause.body)
            return make_response(payload, request, warnings=cause.warnings, denial=verdict.denial, patch=verdict.patch)

    def _select(self, request: ReviewRequest, webhook: str | None) -> tuple[Resource, Sequence[WebhookHandler]]:
        """Select the handlers by everything except for their filters."""
        key = Resource(request.resource.group, request.resource.version, request.resource.resource)
        try:
            resource, candidates = self._handlers[key]
        except KeyError:
            raise UnknownResourceError(f"There are no admission handlers for the resource {key!r:.200}.") from None
        called = candidates if webhook is None else self._paths.find(webhook)
        return resource, [
            handler
            for handler in candidates
            if handler in called and matches_operation(handler, request.operation, request.sub_resource)
        ]

    @contextlib.contextmanager
    def _recalling(self, request: ReviewRequest, resource: Resource, existing: Body | None) -> Iterator[Any]:
        """Get the memo of the object if it exists here, or a temporary one, e.g. for a new object."""
        memos = self._runtime.memos
        uid = existing.object.head.uid if existing is not None else ""
        if request.operation == "CREATE" or not uid or self._is_of_others(resource, uid):
            yield memos.make()
            return
        try:
            yield memos.borrow(uid)
        finally:
            memos.give_back(uid)

    def _is_of_others(self, resource: Resource, uid: str) -> bool:
        """Tell if another replica can get the next review of the object, or its deletion, with nobody telling us."""
        share = self._runtime.share
        return share.fence is not None and (resource not in self._handled or share.is_foreign(uid))

    def _forget(self, resource: Resource, body: Body) -> None:
        """Drop the memo of a deleted object. For handled objects, the watch does that; for others, nobody does."""
        if resource not in self._handled:
            self._runtime.memos.forget(body.object.head.key)

    def _make_cause(
        self,
        request: ReviewRequest,
        resource: Resource,
        old: Body | None,
        new: Body | None,
        memo: Any,
        caller: _Caller,
    ) -> WebhookCause:
        body = new if new is not None else old if old is not None else Body({})
        namespace = request.namespace if resource.namespaced else None
        return WebhookCause(
            logger=LocalObjectLogger(body=_make_reference(body, request, namespace), settings=self._runtime.settings),
            memo=memo,
            indices=self._runtime.indices,
            resource=resource,
            body=body,
            patch=Patch(body=body),
            discarded=Patch(body=body),
            name=request.name,
            namespace=namespace,
            operation=request.operation,
            subresource=request.sub_resource or None,
            dryrun=bool(request.dry_run),
            userinfo=request.user_info or {},
            headers=caller.headers,
            sslpeer=caller.sslpeer,
            warnings=[],
            old=old,
            new=new,
        )


def _make_reference(body: Body, request: ReviewRequest, namespace: str | None) -> Mapping[str, Any]:
    """Make the reference for log messages. The options of connections have no names."""
    if body.object.head.name:
        return body
    versions = {"apiVersion": body.object.api_version, "kind": body.object.kind}
    return {**versions, "metadata": {"name": request.name, "namespace": namespace}}


def _spread_to_other_versions(
    plan: Mapping[Resource, Sequence[WebhookHandler]], resources: Iterable[Resource]
) -> Iterator[tuple[Resource, Sequence[WebhookHandler]]]:
    """
    Assign the handlers for any version to the served versions that are not preferred.

    When another version becomes the preferred one, API servers still send the former one until they notice.
    """
    unversioned = {
        resource.name: fitting
        for resource, handlers in plan.items()
        if (fitting := [item for item in handlers if item.selector is not None and item.selector.version is None])
    }
    yield from ((item, unversioned[item.name]) for item in resources if item.name in unversioned)
