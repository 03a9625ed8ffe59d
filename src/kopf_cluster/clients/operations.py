"""
The operations of clients: each is a function that makes one attempt at a desk of the server.

Attempts are repeated, as the server calls webhooks between them: see `sessions`.

Kinds have any name that `kubectl` accepts, see "Resource types" of its reference: ``deployments``, ``deploy``,
``Deployment``, ``deployments.apps``, ``deployments.v1.apps``. Names are not case-sensitive. If several groups have the
name, the first group wins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from kopf_cluster import codec, patches, statuses
from kopf_cluster.api.api import API
from kopf_cluster.kinds.kind import Kind, Obj
from kopf_cluster.kinds.registry import Registry
from kopf_cluster.requests import Answer, Call, Request, Stream, User, refuse
from kopf_cluster.sessions import Unresolved
from kopf_cluster.store.storage import Closed


def find_kind(registry: Registry, text: str) -> Kind:
    """Find the kind by any of its names; raise `APIStatus` (404) if there is none."""
    name, _, rest = text.lower().partition(".")
    version, dot, group = rest.partition(".")
    exact = _find(registry, name, group, version) if dot else None
    found = exact or _find(registry, name, rest or None) or (_find_by_prefix(registry, name, rest) if rest else None)
    if found is None:
        raise statuses.APIStatus(404, "NotFound", f'the server doesn\'t have a resource type "{text}"')
    return found


def find_kind_of(registry: Registry, manifest: Mapping[str, Any]) -> Kind:
    """Find the kind of an object; raise `APIStatus` (400) if there is none."""
    for field in ("apiVersion", "kind"):
        if not manifest.get(field):
            raise statuses.bad_request(f"the manifest has no {field}: it is not an object of Kubernetes")
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    kind = registry.find_by_kind(group, version, str(manifest["kind"]))
    if kind is None:
        raise statuses.bad_request(
            f'no matches for kind "{manifest["kind"]}" in version '
            f'"{manifest["apiVersion"]}"; is its definition applied already?'
        )
    return kind


def _find(registry: Registry, name: str, group: str | None, version: str | None = None) -> Kind | None:
    groups = registry.groups() if group is None else [group]
    return next((kind for kind in _kinds(registry, groups, version) if name in _names_of(kind)), None)


def _find_by_prefix(registry: Registry, name: str, prefix: str) -> Kind | None:
    """As kubectl, accept the beginning of a group, e.g. ``sc.storage``, if there is no such group as a whole."""
    groups = [group for group in registry.groups() if group.startswith(prefix)]
    return next((kind for kind in _kinds(registry, groups, None) if name in _names_of(kind)), None)


def _kinds(registry: Registry, groups: list[str], version: str | None) -> Iterator[Kind]:
    for group in groups:
        for known in registry.versions(group):
            if version in (None, known):
                yield from registry.kinds(group, known)


def _names_of(kind: Kind) -> set[str]:
    return {kind.plural, kind.singular, kind.kind.lower(), *kind.short_names}


T = TypeVar("T")

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]

_METHODS: Final = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}

AGENT: Final = "kopf-local-cluster"
"""The user agent of the clients in this process."""
_MANAGED: Final = {"fieldManager": "kopf"}


class Desk:
    """Makes requests of one user, and remembers the latest one with its answer."""

    def __init__(self, api: API, registry: Registry, user: User) -> None:
        self.user = user
        self.outcome: tuple[Call, Answer] | None = None
        """The latest request, and its answer."""
        self._registry = registry
        self._api = api

    def get(self, kind: str, name: str, namespace: str) -> Obj:
        return self._ask_object("get", find_kind(self._registry, kind), namespace, name)

    def select(self, kind: str, namespace: str | None, labels: str, fields: str) -> list[Obj]:
        """Return the selected objects; in contrast to items of lists, they have their API versions and kinds."""
        found = find_kind(self._registry, kind)
        query = {"labelSelector": labels, "fieldSelector": fields}
        items = self._ask_object("list", found, namespace, query=query)["items"]
        return [{"apiVersion": found.api_version, "kind": found.kind, **item} for item in items]

    def create(self, manifest: Mapping[str, Any]) -> Obj:
        kind = find_kind_of(self._registry, manifest)
        return self._ask_object("create", kind, _namespace_of(manifest), query=_MANAGED, body=manifest)

    def apply(self, manifest: Mapping[str, Any]) -> Obj:
        """Create the object, or merge the manifest into the existing one."""
        kind, name = find_kind_of(self._registry, manifest), (manifest.get("metadata") or {}).get("name") or ""
        namespace = _namespace_of(manifest)
        if not name or not self._exists(kind, namespace, name):
            return self.create(manifest)
        return self._ask_object(
            "patch", kind, namespace, name, query=_MANAGED, body=manifest, content_type=patches.MERGE
        )

    def patch(self, kind: str, name: str, changes: Any, namespace: str, subresource: str) -> Obj:
        return self._ask_object(
            "patch",
            find_kind(self._registry, kind),
            namespace,
            name,
            subresource=subresource,
            query=_MANAGED,
            body=changes,
            content_type=patches.JSON if isinstance(changes, list) else patches.MERGE,
        )

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str,
        propagation: Propagation | None,
        grace_period: int | None,
    ) -> None:
        body = {"propagationPolicy": propagation, "gracePeriodSeconds": grace_period}
        self._ask_object("delete", find_kind(self._registry, kind), namespace, name, body=body)

    def look(self, kind: str, name: str, namespace: str) -> tuple[Obj | None, str]:
        """Return the object, or none if it does not exist; and the resource version to watch from."""
        found = find_kind(self._registry, kind)
        listed = self._ask_object("list", found, namespace, query={"fieldSelector": f"metadata.name={name}"})
        head = {"apiVersion": found.api_version, "kind": found.kind}
        return {**head, **listed["items"][0]} if listed["items"] else None, listed["metadata"]["resourceVersion"]

    def watch(self, kind: str, name: str, namespace: str, version: str) -> Stream:
        query = {"watch": "1", "resourceVersion": version, "fieldSelector": f"metadata.name={name}"}
        answer = self._ask("watch", find_kind(self._registry, kind), namespace, query=query)
        if isinstance(answer, Answer):
            raise TypeError("the answer is complete, but a stream is expected")
        return answer

    def _exists(self, kind: Kind, namespace: str, name: str) -> bool:
        try:
            self._ask("get", kind, namespace, name)
        except statuses.APIStatus as status:
            if status.code != 404:
                raise
            return False
        return True

    def _ask_object(self, *args: Any, **kwargs: Any) -> Obj:
        """Make a request that is answered with an object."""
        answer = self._ask(*args, **kwargs)
        if not isinstance(answer, Answer):
            raise TypeError("the answer is a stream, but an object is expected")
        obj: Obj = codec.decode(answer.body)
        return obj

    def _ask(
        self,
        verb: str,
        kind: Kind,
        namespace: str | None,
        name: str = "",
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "",
    ) -> Answer | Stream:
        """Make a request; for cluster-wide kinds, it ignores the namespace, as kubectl does."""
        place = namespace if kind.namespaced else None
        call = Call(verb, kind.group, kind.version, kind.plural, place, name or None, subresource)
        request = Request(
            _METHODS.get(verb, "GET"),
            (),
            query or {},
            content_type=content_type,
            user=self.user,
            body=b"" if body is None else codec.encode(body),
            agent=AGENT,
        )
        self.outcome = None
        try:
            answer = self._api.answer(call, request)
        except statuses.APIStatus as status:
            self.outcome = call, refuse(status)
            raise
        self.outcome = call, answer if isinstance(answer, Answer) else Answer(200, b"")
        return answer


Operation: TypeAlias = Callable[[Desk], T]


def _namespace_of(manifest: Mapping[str, Any]) -> str:
    return (manifest.get("metadata") or {}).get("namespace") or "default"


# The way into a running server from any thread and any event loop.


class Host(Protocol):
    """A running server."""

    async def serve(self, user: User, operation: Operation[T], *, admission: bool = True) -> T: ...

    def serve_at_once(self, user: User, operation: Operation[T], *, admission: bool = True) -> T: ...


class Door:
    """Brings operations to the event loop of the server.

    * ``find``: gives the server that is running now, with its event loop, or raises an error if there is none.
    """

    def __init__(self, find: Callable[[], tuple[Host, asyncio.AbstractEventLoop]]) -> None:
        self._find = find

    async def do(self, user: User, operation: Operation[T], *, admission: bool = True) -> T:
        return await self.enter(lambda: self._serve(user, operation, admission=admission))

    def do_and_wait(self, user: User, operation: Operation[T], *, admission: bool = True) -> T:
        host, loop = self._find()
        if not _is_ours(loop):
            return self.enter_and_wait(lambda: self._serve(user, operation, admission=admission))
        try:
            return host.serve_at_once(user, operation, admission=admission)
        except Unresolved:
            raise RuntimeError(
                "a webhook must be called, but this call cannot wait for it in the event loop of the local cluster: "
                "call the same method of `cluster.aio` and await it, or apply with `admission=False`"
            ) from None

    async def _serve(self, user: User, operation: Operation[T], *, admission: bool) -> T:
        while True:
            host, _ = self._find()  # not before: by the time when this is done, it can be another one, restarted
            with contextlib.suppress(Closed):  # it was restarted while webhooks were asked: nothing is done yet
                return await host.serve(user, operation, admission=admission)

    async def enter(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work in the event loop of the server."""
        _, loop = self._find()
        if _current_loop() is loop:
            return await loop.create_task(work())  # with a context of its own
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    def enter_and_wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work there while this thread waits; it must be another thread."""
        _, loop = self._find()
        if _is_ours(loop):
            raise RuntimeError(
                "this call cannot wait in the event loop of the local cluster: "
                "call the same method of `cluster.aio` and await it"
            )
        future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return future.result()
        finally:
            future.cancel()  # if it is this thread that is interrupted


def _is_ours(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it would be this thread that has to run the loop, now or later; an idle loop is run by nobody else."""
    return _current_loop() is loop or not loop.is_running()


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
