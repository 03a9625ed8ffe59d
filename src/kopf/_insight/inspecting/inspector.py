"""
The inspector: it explains objects in the event loop of the operator, for callers in other threads.

If that loop is blocked, the explanation names the blocking code, and has only the journal of decisions.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence

from aiohttp import web

from kopf._client.errors import APIError, APINetworkError
from kopf._client.resources.listing import parse_list
from kopf._controller.controller import Controller
from kopf._controller.observer import ControllerView, Observer, Observers
from kopf._controller.runtime import Runtime
from kopf._handlers.handlers import ResourceHandler
from kopf._handlers.registry import OperatorRegistry
from kopf._health.watchdog import describe_culprit
from kopf._insight.backlog import Backlog
from kopf._insight.endpoint.console_server import AnswerError
from kopf._insight.explaining.assembly import explain, find_resources, make_frame
from kopf._insight.explaining.dry_run import Facts, LiveFacts
from kopf._insight.explaining.explanation import Explanation, OperatorInfo, Query, StateInfo
from kopf._insight.inspecting.decision_journal import DecisionJournal
from kopf._insight.inspecting.object_activity import ObjectActivity
from kopf._values.objects import KubeObject
from kopf._values.replica_state import ReplicaState
from kopf._values.resources import Resource
from kopf._values.slots import get_slot

PULSE_TIMEOUT = 2.0
"""After how long an event loop that does not answer counts as blocked, in seconds."""

ANSWER_TIMEOUT = 15.0
"""How long the request for the object may take, in seconds."""

_STEP = 0.5
"""How often the inspector checks if the event loop is blocked, in seconds."""


class Inspector(Observer):
    """
    Observes one operator from now on. It is made in the event loop of the operator, and asked from other ones.

    :param serves: tells if the operator serves the namespace; ``None`` is for objects without namespaces.
    """

    def __init__(
        self,
        observers: Observers,
        backlog: Backlog,
        *,
        registry: OperatorRegistry,
        serves: Callable[[str | None], bool],
    ) -> None:
        self._backlog = backlog
        self._registry = registry
        self._serves = serves
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._journal = DecisionJournal(backlog)
        backlog.add(self._journal)
        self._controllers: dict[Resource, Controller] = {}
        self._replica: ReplicaState | None = None
        observers.add(self)

    def controller_started(self, controller: ControllerView) -> None:
        if isinstance(controller.controller, Controller):
            self._controllers[controller.resource] = controller.controller

    def controller_stopped(self, controller: ControllerView) -> None:
        if self._controllers.get(controller.resource) is controller.controller:
            del self._controllers[controller.resource]

    def share_changed(self, state: ReplicaState) -> None:
        self._replica = state

    async def answer(self, request: web.BaseRequest) -> Explanation:
        """
        Explain the object that the request is about, in any other event loop.

        Raises :class:`AnswerError` if there is no such object, or it cannot be explained.
        """
        query = parse_query(request)
        if self._loop.is_closed():
            raise AnswerError("The operator is exiting.", status=503)
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.explain(query), self._loop))
        deadline = time.monotonic() + ANSWER_TIMEOUT
        try:
            while not answer.done() and time.monotonic() < deadline:
                if not await self._is_alive():
                    culprit = describe_culprit(sys._current_frames().get(self._thread))
                    return self._explain_partly(query, "Not all can be told, as the operator is blocked.", culprit)
                await asyncio.wait([answer], timeout=_STEP)
            if answer.done():
                return answer.result()
        finally:
            answer.cancel()
        note = f"Not all can be told, as the operator has not got the object in {ANSWER_TIMEOUT:g} seconds."
        return self._explain_partly(query, note)

    async def _is_alive(self) -> bool:
        """Tell if the event loop of the operator answers."""
        pulse = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop))
        done, _ = await asyncio.wait([pulse], timeout=PULSE_TIMEOUT)
        pulse.cancel()
        return bool(done)

    async def explain(self, query: Query) -> Explanation:
        """Explain the object, in the event loop of the operator. Raises :class:`AnswerError` as :meth:`ask`."""
        resource = self._find_resource(query.resource)
        controller, runtime = self._controllers[resource], self._controllers[resource].scope.runtime
        namespace = query.namespace if resource.namespaced else None
        if resource.namespaced and namespace is None:
            raise AnswerError(f"The objects of {resource!r} are namespaced: name the namespace.")
        if not self._serves(namespace):
            raise AnswerError(f"The operator does not serve the namespace {namespace!r}.", status=403)
        try:
            obj = await _find_object(runtime, resource, namespace, query.name)
        except (APIError, APINetworkError, ValueError) as e:
            return self._explain_partly(query, f"The operator cannot get the object: {e}.")
        if obj is None:
            where = "" if namespace is None else f" in the namespace {namespace!r}"
            raise AnswerError(f"There is no {query.name!r} of {resource!r}{where}.", status=404)
        return self._explain(controller, obj)

    def _explain(self, controller: Controller, obj: KubeObject) -> Explanation:
        self._backlog.settle()
        scope, key = controller.scope, obj.head.key
        runtime = scope.runtime
        handlers, elsewhere = self._list_handlers(controller)
        activity = ObjectActivity(controller, key, self._journal)
        carried, memory = activity.snapshot
        memo = runtime.memos.borrow(key)
        try:
            return explain(
                Facts(
                    now=runtime.clock.now(),
                    resource=scope.resource,
                    obj=obj,
                    handlers=handlers,
                    elsewhere=elsewhere,
                    settings=runtime.settings,
                    snapshots=scope.snapshots,
                    memo=memo,
                    indices=runtime.indices,
                    notes=[] if self._replica is None else [_describe_share(self._replica, key)],
                    carried=carried,
                    memory=memory,
                    live=LiveFacts(
                        operator=_describe_operator(runtime),
                        state=activity.describe_state(),
                        runs=activity.describe_runs(),
                        running=activity.running,
                        decisions=self._journal.get_decisions(scope.resource, key),
                    ),
                )
            )
        finally:
            runtime.memos.give_back(key)

    def _list_handlers(self, controller: Controller) -> tuple[Sequence[ResourceHandler], Sequence[ResourceHandler]]:
        """List the handlers of the resource, and all others."""
        handlers = controller.scope.handlers
        own = {*handlers.indexing, *handlers.watching, *handlers.spawning, *handlers.changing}
        for item in self._registry.webhooks:
            if item.selector is not None and item.selector.check(controller.scope.resource):
                own.add(item)
        declared = [*self._registry.resources, *self._registry.webhooks]
        return [item for item in declared if item in own], [item for item in declared if item not in own]

    def _find_resource(self, name: str) -> Resource:
        known = [*self._controllers]
        found = find_resources(name, known)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(sorted(map(repr, found)))
            raise AnswerError(f"{name!r} is ambiguous: {names}.")
        names = ", ".join(sorted(map(repr, known))) or "none"
        text = f"The operator does not watch any {name!r}. The resources that it watches: {names}."
        raise AnswerError(text, status=404)

    def _explain_partly(self, query: Query, note: str, culprit: str | None = None) -> Explanation:
        """Explain as much as possible without the object."""
        self._backlog.settle()
        resource = self._find_resource(query.resource)
        scope = self._controllers[resource].scope
        namespace = query.namespace if resource.namespaced else None
        key = self._journal.find_key(resource, namespace, query.name)
        running = {} if key is None else self._journal.get_running(resource, key)
        state = StateInfo(
            name="handling" if running else "unknown",
            text=f"is being handled by {', '.join(running)}" if running else "is in a state that cannot be told now",
            position=None,
            next=None,
            handler=", ".join(running) or None,
            since=min((attempt["at"] for attempt in running.values()), default=None),
            errors=0,
            unsaved=None,
        )
        decisions = [] if key is None else self._journal.get_decisions(resource, key)
        obj = KubeObject.from_dict({"metadata": {"name": query.name, "namespace": namespace}})
        live = LiveFacts(operator=_describe_operator(scope.runtime, blocked=culprit), state=state, decisions=decisions)
        return make_frame(
            Facts(
                now=scope.runtime.clock.now(),
                resource=resource,
                obj=obj,
                handlers=None,
                settings=scope.runtime.settings,
                snapshots=scope.snapshots,
                live=live,
                notes=[note],
            ),
        )


async def _find_object(runtime: Runtime, resource: Resource, namespace: str | None, name: str) -> KubeObject | None:
    """Find the object by a listing: operators may list objects, but not all of them may get objects one by one."""
    path = resource.get_url(namespace=namespace, params={"fieldSelector": f"metadata.name={name}"})
    _, items = parse_list(await runtime.api.for_tools.get(path, backoffs=()))
    found = [KubeObject.salvage(item, api_version=resource.api_version, kind=resource.kind) for item in items]
    return next((obj for obj in found if obj.head.name == name), None)


def _describe_share(replica: ReplicaState, key: str) -> str:
    slot = get_slot(key)
    if slot in replica.held:
        what = f"handles slot {slot} of the object"
    else:
        owners = [f"belongs to {name}" for name, slots in replica.others.items() if slot in slots]
        what = f"does not handle slot {slot} of the object, which {(*owners, 'has no owner now')[0]}"
    return f"This is the {replica.describe()}; it {what}."


def _describe_operator(runtime: Runtime, *, blocked: str | None = None) -> OperatorInfo:
    return OperatorInfo(paused=[*runtime.pause.reasons], blocked=blocked)


_MAX_NAME = 300


def parse_query(request: web.BaseRequest) -> Query:
    """Parse the query of a request about an object. Raises :class:`AnswerError`."""
    query = request.query
    resource, namespace, name = query.get("resource", ""), query.get("namespace"), query.get("name", "")
    if not resource or not name or max(map(len, (resource, namespace or "", name))) > _MAX_NAME:
        raise AnswerError("The resource and the name of the object are needed: ?resource=…&name=…")
    return Query(resource, namespace or None, name)
