"""
Planning: what an operator would do if it started now, without doing it.

It runs the operator itself, with the dry client instead of the real one, and with a choice of the handlers to call,
until there is nothing more to do at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from kopf._client.auth.vault import Vault
from kopf._client.resources.patching import PatchConflict
from kopf._controller.changes.decision import Plan
from kopf._controller.changes.detection import Detection
from kopf._controller.instruments import Execute, Instruments
from kopf._controller.memos import Memo
from kopf._controller.observer import ControllerView, Observer, Observers
from kopf._handlers.attempts import Attempt, Outcome, name_reason
from kopf._handlers.causes import Cause, ResourceCause
from kopf._handlers.executor import Surroundings
from kopf._handlers.handler_errors import HandlerChildrenRetry
from kopf._handlers.handlers import ChangingHandler, Handler, IndexingHandler, ResourceHandler, TimerHandler
from kopf._handlers.lifecycles import all_at_once
from kopf._handlers.registry import OperatorRegistry
from kopf._handlers.signatures import check_registry
from kopf._operator.dry_client import Draft, DryClient, Obj, Place
from kopf._operator.namespace_patterns import NamespacePattern
from kopf._operator.running import Operator, OperatorSetup
from kopf._operator.tasks import cancel
from kopf._settings.settings import OperatorSettings, set_peering
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.objects import KubeObject
from kopf._values.operator_error import OperatorError
from kopf._values.reasons import Activity
from kopf._values.records import FrozenRecord, replace
from kopf._values.resources import Resource

_SETTLING_TIME = 1.0
"""How long nothing must happen until the plan is complete, in seconds."""
_STEP = 0.05
_NEVER = 86400.0
"""The delay of retries, in seconds: the plan does not wait for them."""
_CHANGES = frozenset({"create", "update", "delete"})


class PlanningError(OperatorError):
    """The operator cannot start, so that there is no plan."""


class PlannedCall(FrozenRecord, frozen=True):
    """A handler whose time has come."""

    place: Place
    handler: str
    """E.g. ``Handler 'create_fn'``."""
    reason: str
    """``create``, ``update``, ``delete``, ``resume``, ``event``, ``timer``, ``daemon``."""
    is_change: bool
    """Whether the reason is a change of the object, and not the start of the operator."""
    is_called: bool
    """Whether the handler was really called, so that its writes are known."""
    mismatch: str | None = None
    """The mismatch of the object with its model, because of which the handler would not be called yet."""
    error: str | None = None


class PlannedActions(FrozenRecord, frozen=True):
    """The actions that an operator would take."""

    drafts: dict[Place, Draft]
    events: list[Obj]
    calls: list[PlannedCall]
    errors: list[tuple[Place, str]]
    """The errors of writes, and other errors of the handling."""


async def plan(
    registry: OperatorRegistry,
    settings: OperatorSettings,
    *,
    vault: Vault | None,
    namespaces: Collection[NamespacePattern],
    is_called: Callable[[Handler], bool],
) -> PlannedActions:
    """
    Plan the actions of the operator; ``is_called`` chooses the handlers that are really called.

    Raises :class:`PlanningError`, and the errors of :func:`kopf.operator`.
    """
    check_registry(registry)
    set_peering(settings, standalone=True, priority=None, name=None)
    settings.posting.loggers = False
    planner = _Planner(is_called)
    setup = OperatorSetup(
        registry=registry,
        settings=settings,
        lifecycle=all_at_once,
        namespaces=namespaces,
        identity=None,
        vault=vault,
        memo=Memo(),
        ready_flag=None,
        endpoint=None,
        instruments=Instruments(
            make_client=planner.make_client, interceptors=[planner.attempt], has_webhooks=False, has_replicas=False
        ),
        observers=Observers(),
    )
    setup.observers.add(planner)
    running = asyncio.create_task(Operator(setup).run(), name="operator")
    settling = asyncio.create_task(planner.settle(), name="settling")
    try:
        await asyncio.wait([running, settling], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel([running, settling])
    if not running.cancelled():
        running.result()
    if planner.failure is not None:
        raise PlanningError(planner.failure)
    client, errors = planner.client, [*planner.errors, *planner.list_unknown(), *planner.list_unserved(registry)]
    return PlannedActions(client.drafts, client.events, planner.calls, errors)


class _Planner(Observer):
    """Observes the operator, and lets only some of the handlers be called."""

    client: DryClient

    def __init__(self, is_called: Callable[[Handler], bool]) -> None:
        self._is_called = is_called
        self._controllers: list[ControllerView] = []
        self._seen: set[tuple[str, Handler]] = set()
        self._busy = 0
        self.calls: list[PlannedCall] = []
        self.errors: list[tuple[Place, str]] = []
        self.failure: str | None = None
        """Why the operator cannot start, if so."""

    def make_client(self, vault: Vault, settings: OperatorSettings, observer: Observer) -> DryClient:
        self.client = DryClient(vault, settings, observer)
        return self.client

    def controller_started(self, controller: ControllerView) -> None:
        self._controllers.append(controller)

    def pass_decided(self, resource: Resource, key: str, obj: KubeObject, detection: Detection, plan: Plan) -> None:
        """Call handlers at once that wait for retries after failures under another operator."""
        waiting = {key for key, state in plan.progress.items() if not state.finished}
        waiting -= {item.id for item in plan.call}
        plan.call = [*plan.call, *[x for x in plan.called if x.id in waiting and (key, x) not in self._seen]]

    def pass_ended(
        self,
        resource: Resource,
        key: str,
        obj: KubeObject | None,
        error: BaseException | None,
        delay: float | None,
        started: float,
    ) -> None:
        if obj is not None and isinstance(error, Exception) and not isinstance(error, PatchConflict):
            self.errors.append((_get_place(resource, obj), f"{type(error).__name__}: {error}"))

    async def attempt(
        self, execute: Execute, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings
    ) -> Outcome:
        """Make the attempt, or only note it."""
        if not isinstance(cause, ResourceCause) or isinstance(handler, IndexingHandler):
            outcome = await self._execute(execute, handler, cause, attempt, around)
            if name_reason(handler, cause) == Activity.STARTUP.value and outcome.exception is not None:
                self.failure = f"The operator cannot start, as {handler} has failed: {outcome.exception}"
            return outcome
        place = _get_place(cause.resource, cause.body.object)
        reason = name_reason(handler, cause)
        is_change = reason in _CHANGES and isinstance(handler, ChangingHandler) and not handler.initial
        call = PlannedCall(place, str(handler), reason, is_change, self._is_called(handler))
        key = (cause.body.object.head.key, handler)
        is_repeated = key in self._seen and isinstance(handler, TimerHandler)
        self._seen.add(key)
        if is_repeated or (not call.is_called and _is_fit(handler, cause)):
            self.calls += [] if is_repeated else [call]
            return Outcome(final=True)
        outcome = await self._execute(execute, handler, cause, attempt, around)
        if outcome.is_unfit:
            call = replace(call, is_called=False, mismatch=str(outcome.exception))
            self.calls += [call] if call not in self.calls else []
            return outcome
        error = outcome.exception if not isinstance(outcome.exception, HandlerChildrenRetry) else None
        text = None if error is None else f"{type(error).__name__}: {error}"
        self.calls.append(replace(call, error=text))
        return outcome if error is None or outcome.final else replace(outcome, delay=_NEVER)

    async def _execute(
        self, execute: Execute, handler: Handler, cause: Cause, attempt: Attempt, around: Surroundings
    ) -> Outcome:
        self._busy += 1
        try:
            return await execute(handler, cause, attempt, around)
        finally:
            self._busy -= 1

    def list_unknown(self) -> Iterator[tuple[Place, str]]:
        """List the denied listings of handled resources: their objects are unknown."""
        handled = {(view.resource.group, view.resource.plural) for view in self._controllers}
        for place, text in self.client.denied.items():
            if (place.group, place.plural) in handled and not place.name:
                yield place, text

    def list_unserved(self, registry: OperatorRegistry) -> Iterator[tuple[Place, str]]:
        """List the resources of handlers that the cluster does not serve: their objects are unknown, too."""
        resources = [view.resource for view in self._controllers]
        for selector in dict.fromkeys(handler.selector for handler in registry.resources):
            if selector is not None and selector.is_specific and not selector.select(resources):
                name = selector.plural or selector.any_name or selector.kind or selector.singular or selector.shortcut
                text = "It is not in the cluster, or cannot be served: is its definition installed?"
                yield Place(selector.group or "", str(name), None, ""), text

    async def settle(self) -> None:
        """Wait until everything is done that can be done now."""
        quiet = 0.0
        while quiet < _SETTLING_TIME and self.failure is None:
            await asyncio.sleep(_STEP)
            queues = [view.queue for view in self._controllers]
            is_busy = self._busy or self.client.busy or any(queue.waiting or queue.active for queue in queues)
            quiet = 0.0 if is_busy or not self.client.is_connected else quiet + _STEP


def _is_fit(handler: Handler, cause: ResourceCause) -> bool:
    try:
        if isinstance(handler, ResourceHandler):
            cause.check_fit(handler)
    except ModelMismatchError:
        return False
    return True


def _get_place(resource: Resource, obj: KubeObject) -> Place:
    return Place(resource.group, resource.plural, obj.head.namespace, obj.head.name)
