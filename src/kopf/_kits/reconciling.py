"""
Reconciling: Kopf creates and repairs the children that a handler yields for an object, and deletes the former ones.

The children themselves keep the record: the object owns them (by its uid), and a label names the handler. So there is
no inventory to lose, or to be wrong after a crash. If a call ends with an error, or waits, Kopf deletes nothing: the
full set of children is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kopf._client.errors import APIClientError, APIConflictError, APINotFoundError
from kopf._client.http.api import get_current_api, get_current_loop
from kopf._controller.controller_registry import Controllers, Place, Wakeup, get_current_controllers
from kopf._handlers.attempts import Attempt
from kopf._handlers.current_handler import current_subhandling
from kopf._handlers.declarations import DeclarationError
from kopf._handlers.handler_errors import TemporaryError
from kopf._handlers.handlers import HandlerFn, ReconcilingHandler, Reference, is_async
from kopf._kits.applying import ApplyConflictError, Check, Obj, apply_plain, find_resource
from kopf._kits.child_conditions import CallInterruptedError, reporting
from kopf._kits.hierarchies import RECONCILER_LABEL
from kopf._kits.manifests import K8sObject, list_objects, name_object, to_plain
from kopf._kits.readiness import NotReadyError
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject, ObjectMeta
from kopf._values.references import build_owner_reference, list_owner_uids
from kopf._values.resources import Resource
from kopf._values.selectors import Selector
from kopf._values.user_functions import explaining

T = TypeVar("T")

_MAX_LABEL = 63
_FOREIGN_DELAY = 60.0
_GARBAGE_DELAY = 1.0
"""When to look again if the object in the way is being deleted, or was changed by others just now, in seconds."""


class _NamespaceGoneError(TemporaryError):
    """The child cannot be created, because its namespace is being deleted, or is deleted already."""


class _PausedError(CallInterruptedError):
    """The operator has been paused."""


class _OwnerGoneError(CallInterruptedError):
    """The object is deleted, or is being deleted, but its event has not come yet."""


class ForeignObjectError(TemporaryError):
    """Another object has the name of the child. Kopf leaves it alone, because it is not ours."""


def ref(resource: str, fn: HandlerFn, /) -> Reference:
    """
    Name the objects that the reconciled objects use: for ``uses=`` of :func:`kopf.reconcile`.

    ``fn`` takes the arguments of handlers, and returns a name, or a tuple of the namespace and the name, or a list of
    these, or ``None``. A name alone means the namespace of the object. The ``resource`` is named as in ``owns=``.

    Raises :class:`kopf.DeclarationError` if ``fn`` is asynchronous: Kopf does not await it.
    """
    if is_async(fn) or inspect.isasyncgenfunction(fn):
        raise DeclarationError.at_caller("Kopf does not await the function of kopf.ref(): remove its 'async'.")
    return Reference(Selector(resource), fn)


def make_call(fn: HandlerFn) -> HandlerFn:
    """Make the function that Kopf calls instead: it applies all objects that the handler yields or returns."""

    async def call(**kwargs: Any) -> None:
        reconciliation = _Reconciliation()
        with reconciliation.waiting(kwargs):
            await reconciliation.begin()
            await reconciliation.take(fn(**kwargs))
            await reconciliation.prune()

    def call_in_thread(**kwargs: Any) -> None:
        reconciliation = _Reconciliation()
        with reconciliation.waiting(kwargs):
            _await(reconciliation.begin())
            result = fn(**kwargs)
            if isinstance(result, AsyncGenerator) or inspect.isawaitable(result):  # e.g. of a lambda
                _await(reconciliation.take(result))
            else:
                reconciliation.take_in_thread(result)
            _await(reconciliation.prune())

    return call if inspect.isasyncgenfunction(fn) or is_async(fn) else call_in_thread


def _await(coro: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coro, get_current_loop()).result()


class _Reconciliation:
    """One call for one object."""

    def __init__(self) -> None:
        get_current_api()  # in unit tests, its error names the missing cluster
        context = current_subhandling.get()
        self._cause, self._handler = context.cause, context.parent
        self._controllers = get_current_controllers()
        self._mark, self._reference = _make_label(self._handler.id), build_owner_reference(self._cause.body)
        self._owned: list[Resource] = []
        self._children: frozenset[str] = frozenset()
        self._yielded: dict[tuple[str, ...], Body] = {}

    @property
    def _owner(self) -> ObjectMeta:
        return self._cause.body.object.head

    async def begin(self) -> None:
        """Find the existing children; in the event loop, as everything here."""
        self._owned = self._controllers.list_owned(self._cause.resource, self._handler.id)
        self._children = frozenset(uid for _, uid in self._list_children())
        if self._handler.uses:
            wakeup = Wakeup(self._cause.resource, self._owner.key, self._handler.id)
            self._controllers.references.put(wakeup, [*self._list_used()])

    def _list_children(self) -> Iterator[tuple[Resource, str]]:
        for resource in self._owned:
            if (children := self._controllers.get_children(resource)) is not None:
                yield from ((resource, uid) for uid in children.list_of(self._owner.uid))

    def _list_used(self) -> Iterator[Place]:
        for item in self._handler.uses:
            with explaining(item.fn, f"uses= of {self._handler}"):
                names = item.fn(**self._cause.kwargs_for(self._handler))
            for name in [] if names is None else [names] if isinstance(names, str | tuple) else names:
                for resource in item.selector.select(self._controllers.resources):
                    namespace, plain = name if isinstance(name, tuple) else (self._owner.namespace, name)
                    yield Place(resource, namespace if resource.namespaced else None, plain)

    @contextlib.contextmanager
    def waiting(self, kwargs: Mapping[str, Any]) -> Iterator[None]:
        """End the call if something is not ready: it is called again when that has changed. Set the conditions."""
        is_reporting = isinstance(self._handler, ReconcilingHandler) and self._handler.sets_conditions
        attempt = Attempt(kwargs["retry"], kwargs["started"], kwargs["runtime"])
        reported = reporting(self._cause, self._handler, attempt, self._yielded.values()) if is_reporting else None
        try:
            with reported or contextlib.nullcontext():
                yield
        except NotReadyError as e:
            self._cause.logger.debug("%s waits: %s", self._handler, e)
        except _NamespaceGoneError as e:
            if not self._owner.namespace:
                raise
            self._cause.logger.debug("%s ends, as the object is about to be deleted, too: %s", self._handler, e)
        except _OwnerGoneError:
            self._cause.logger.debug("%s ends, as the object is being deleted.", self._handler)
        except _PausedError:
            self._cause.logger.debug("%s is interrupted, because the operator is paused.", self._handler)
            self._controllers.enqueue(self._cause.resource, self._owner.key, {self._handler.id})

    async def take(self, result: AsyncGenerator[K8sObject | None, Any] | Awaitable[Any]) -> None:
        """Apply all objects from the function."""
        if not isinstance(result, AsyncGenerator):
            for item in _list_returned(await result):
                await self._apply(item)
            return
        async with contextlib.aclosing(result):
            child: Body | None = None
            while True:
                try:
                    desired = await result.asend(child)
                except StopAsyncIteration:
                    return
                child = await self._apply(desired)

    def take_in_thread(self, result: Any) -> None:
        """Do the same in the thread of the function."""
        if not isinstance(result, Generator):
            for item in _list_returned(result):
                _await(self._apply(item))
            return
        with contextlib.closing(result):
            child: Body | None = None
            while True:
                try:
                    desired = result.send(child)
                except StopIteration:
                    return
                child = _await(self._apply(desired))

    async def _apply(self, child: K8sObject | None) -> Body | None:
        if child is None:
            return None
        desired = to_plain(child)
        same_version = find_resource(self._owned, desired)
        resource = same_version or _find_other_version(self._owned, desired)
        if resource is None:
            raise LookupError(
                f"{self._handler} yields {desired.get('kind')!r} of {desired.get('apiVersion')!r}, which is not among "
                "its owns= (or cannot be watched): add it to owns=."
            )
        key = self._adopt(desired, resource)
        if key in self._yielded:
            raise ValueError(f"{name_object(desired)} is yielded twice.")
        _check_pause(self._controllers, self._cause.resource)
        try:
            body = await _write(desired, same_version, self._check_owner)
        except ApplyConflictError as e:
            text = "%s: %s. Kopf takes it over, because the handler yields it. If it is not yours, do not yield it."
            self._cause.logger.warning(text, name_object(desired), e.managers)
            body = await _write(desired, same_version, self._check_owner, force=True)
        self._yielded[key] = body
        return body

    def _adopt(self, desired: Obj, resource: Resource) -> tuple[str, ...]:
        """Adopt the child as :func:`kopf.adopt` does, if it can be owned; return its identity."""
        owner, metadata = self._owner, desired.setdefault("metadata", {})
        namespace = metadata.get("namespace") or owner.namespace or ""
        if owner.namespace and (not resource.namespaced or namespace != owner.namespace):
            raise ValueError(
                f"{desired['kind']} cannot be owned by an object in the namespace {owner.namespace!r}, as it is in "
                "another one, or in none. Use kopf.apply(…, is_owned=False), and delete it in @kopf.on.delete."
            )
        if namespace:
            metadata["namespace"] = namespace
        if not metadata.get("generateName"):  # it is refused later
            metadata["name"] = metadata.get("name") or owner.name
        metadata["labels"] = {**(owner.labels or {}), **(metadata.get("labels") or {}), RECONCILER_LABEL: self._mark}
        references = [item for item in metadata.get("ownerReferences") or () if item.get("uid") != owner.uid]
        metadata["ownerReferences"] = [*references, self._reference]
        return resource.name, namespace, metadata.get("name", "")

    async def _check_owner(self, place: Place, current: KubeObject | None, is_known: bool) -> None:
        """Check that the existing object is a child of this object, and of no other handler."""
        if current is None:
            if is_known:  # the garbage collector deletes the children of deleted objects; their events can be late
                await _check_existence(self._cause.resource, self._owner)
            return
        resource, head = self._cause.resource, current.head
        kinds = {(resource.group, resource.kind)}
        if head.key not in self._children and self._owner.uid not in list_owner_uids(current, kinds):
            owners = {item["kind"]: item["name"] for item in current["metadata"].get("ownerReferences") or ()}
            is_garbage = owners.get(resource.kind) == self._owner.name or head.deletionTimestamp is not None
            text = f"{name_object(current)} exists, and is not owned by this object. It is left alone."
            raise ForeignObjectError(text, _GARBAGE_DELAY if is_garbage else _FOREIGN_DELAY)
        mark = (head.labels or {}).get(RECONCILER_LABEL, self._mark)
        if mark != self._mark:
            text = f"{name_object(current)} is yielded by another reconciler, {mark!r}. It is left alone."
            raise ForeignObjectError(text, _FOREIGN_DELAY)

    async def prune(self) -> None:
        """Delete the former children that the handler no longer yields."""
        yielded = {body.object.head.key for body in self._yielded.values()}
        for resource, uid in [item for item in self._list_children() if item[1] not in yielded]:
            if (children := self._controllers.get_children(resource)) is None:
                continue
            if (obj := children.get(uid)) is None:
                continue  # it has gone while another one was being deleted
            head = obj.head
            if (head.labels or {}).get(RECONCILER_LABEL) != self._mark or head.deletionTimestamp is not None:
                continue
            _check_pause(self._controllers, self._cause.resource)
            preconditions = {"uid": head.uid, "resourceVersion": head.resourceVersion}
            payload = {"propagationPolicy": "Background", "preconditions": preconditions}
            url = resource.get_url(namespace=head.namespace, name=head.name)
            try:
                await get_current_api().delete(url, payload=payload)
                self._cause.logger.info("%s is deleted: the handler no longer yields it.", name_object(obj))
            except APINotFoundError:
                pass
            except APIConflictError as e:  # it can be somebody else's by now: look at it as it is then
                raise TemporaryError(f"{name_object(obj)} has changed before it was deleted.", _GARBAGE_DELAY) from e


async def _write(desired: Obj, resource: Resource | None, check: Check, *, force: bool = False) -> Body:
    try:
        return await apply_plain(get_current_api(), desired, resource=resource, check=check, force=force)
    except APIClientError as e:
        if e.is_namespace_gone:
            text = f"{name_object(desired)} cannot be created: its namespace is being deleted, or does not exist."
            raise _NamespaceGoneError(text, _GARBAGE_DELAY) from None
        if not isinstance(e, APIConflictError) and not e.is_identity_mismatch:
            raise
        # What we know of the child is outdated.
        text = f"{name_object(desired)} was deleted or replaced by others meanwhile. It is looked at again."
        raise TemporaryError(text, delay=_GARBAGE_DELAY) from e


async def _check_existence(resource: Resource, owner: ObjectMeta) -> None:
    """Check that the object still exists in the cluster. A list needs no permission that the operator lacks."""
    params = {"fieldSelector": f"metadata.name={owner.name}"}
    raw = await get_current_api().get(resource.get_url(namespace=owner.namespace), params=params)
    found = [item["metadata"] for item in codec.decode(raw)["items"]]
    if not any(item["uid"] == owner.uid and not item.get("deletionTimestamp") for item in found):
        raise _OwnerGoneError


def _check_pause(controllers: Controllers, resource: Resource) -> None:
    """Do not write beside the operator that has the priority, even if the call began before the pause."""
    if controllers.is_paused(resource):
        raise _PausedError


def _find_other_version(owned: Sequence[Resource], desired: Obj) -> Resource | None:
    """Find the resource that is watched in another version: its definition can get a new preferred one."""
    group = str(desired.get("apiVersion")).rpartition("/")[0]
    return next((item for item in owned if (item.group, item.kind) == (group, desired.get("kind"))), None)


def _list_returned(result: Any) -> Sequence[K8sObject | None]:
    return [] if result is None else list_objects(result)


def _make_label(handler: str) -> str:
    """Make a proper value of a label of the id, see "Labels and Selectors" of the Kubernetes documentation."""
    if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", handler) and len(handler) <= _MAX_LABEL:
        return handler
    digest = hashlib.blake2b(handler.encode(), digest_size=4).hexdigest()
    plain = re.sub(r"[^A-Za-z0-9]+", "-", handler).strip("-")[: _MAX_LABEL - len(digest) - 1]
    return f"{plain}-{digest}" if plain else digest
