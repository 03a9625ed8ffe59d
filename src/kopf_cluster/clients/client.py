"""
Clients of the cluster in the same process: plain dicts in and out, synchronous and asynchronous.

They call the API directly, without HTTP. Webhooks review their requests, and roles limit them; but faults do not
disturb them, and the counters do not count them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import yaml

from kopf_cluster import codec
from kopf_cluster.clients.operations import Desk, Door, Propagation
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.requests import Stream, User

TIMEOUT: Final = 10.0
"""The default time to wait, in seconds."""

Manifests: TypeAlias = Mapping[str, Any] | str | pathlib.Path
Objs: TypeAlias = list[Obj]


class AsyncClient:
    """Works with the objects as one user of the cluster, from any event loop.

    It has the same methods as `Client`, as coroutines.
    """

    def __init__(self, door: Door, user: User) -> None:
        self._door = door
        self._user = user

    async def get(self, kind: str, name: str, *, namespace: str = "default") -> Obj:
        return await self._door.do(self._user, lambda desk: desk.get(kind, name, namespace))

    async def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Objs:
        return await self._door.do(self._user, lambda desk: desk.select(kind, namespace, labels, fields))

    async def create(self, manifest: Mapping[str, Any]) -> Obj:
        clean = _clean(manifest)
        return await self._door.do(self._user, lambda desk: desk.create(clean))

    async def apply(self, manifests: Manifests, *, admission: bool = True) -> Objs:
        return [
            await self._door.do(self._user, functools.partial(Desk.apply, manifest=manifest), admission=admission)
            for manifest in _read(manifests)
        ]

    async def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "default",
        subresource: str = "",
    ) -> Obj:
        clean = _clean(patch)
        return await self._door.do(self._user, lambda desk: desk.patch(kind, name, clean, namespace, subresource))

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        propagation: Propagation | None = None,
        grace_period: int | None = None,
    ) -> None:
        await self._door.do(self._user, lambda desk: desk.delete(kind, name, namespace, propagation, grace_period))

    async def wait_for(
        self,
        kind: str,
        name: str,
        until: Until = "create",
        *,
        namespace: str = "default",
        timeout: float = TIMEOUT,
    ) -> Obj:
        condition = parse_condition(until)
        return await self._door.enter(lambda: wait(self._door, self._user, (kind, name, namespace), condition, timeout))


class Client:
    """Works with the objects as one user of the cluster, from any thread.

    Kinds have any name that kubectl accepts: ``pods``, ``pod``, ``po``, ``Pod``, ``deployments.apps``,
    ``deployments.v1.apps``. All methods raise `APIStatus` with the message of the server if it refuses the request.
    """

    def __init__(self, door: Door, user: User) -> None:
        self._door = door
        self._user = user
        self.aio = AsyncClient(door, user)
        """The same methods as coroutines: ``await cluster.aio.get(...)``."""

    def get(self, kind: str, name: str, *, namespace: str = "default") -> Obj:
        """Return the object.

        * ``kind``: the kind of the object.
        * ``name``: the name of the object.
        * ``namespace``: the namespace of the object; ignored for cluster-wide kinds.
        """
        return self._door.do_and_wait(self._user, lambda desk: desk.get(kind, name, namespace))

    def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Objs:
        """Return the objects of one namespace, or of all namespaces by default.

        * ``kind``: the kind of the objects.
        * ``namespace``: the namespace of the objects.
        * ``labels``: a label selector, e.g. ``app=web,tier!=cache``.
        * ``fields``: a field selector, e.g. ``metadata.name=one``.
        """
        return self._door.do_and_wait(self._user, lambda desk: desk.select(kind, namespace, labels, fields))

    def create(self, manifest: Mapping[str, Any]) -> Obj:
        """Create the object, by default in the namespace ``default``; return its new state.

        * ``manifest``: the object, with its ``apiVersion`` and ``kind``.
        """
        clean = _clean(manifest)
        return self._door.do_and_wait(self._user, lambda desk: desk.create(clean))

    def apply(self, manifests: Manifests, *, admission: bool = True) -> Objs:
        """Create the objects, or merge the manifests into the existing ones; return their new states.

        * ``manifests``: one manifest as a dict; a text with any number of YAML documents; or a path to such a file. The
          items of a ``kind: List`` are applied one by one.
        * ``admission``: whether the server calls admission webhooks.

        Raises `TypeError` or `ValueError` if the manifests are no objects.
        """
        return [
            self._door.do_and_wait(self._user, functools.partial(Desk.apply, manifest=manifest), admission=admission)
            for manifest in _read(manifests)
        ]

    def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "default",
        subresource: str = "",
    ) -> Obj:
        """Change the object, or its subresource, e.g. ``status``; return the new state.

        * ``kind``: the kind of the object.
        * ``name``: the name of the object.
        * ``patch``: a merge-patch as a dict, or the operations of a JSON-patch as a list.
        * ``namespace``: the namespace of the object; ignored for cluster-wide kinds.
        * ``subresource``: the subresource to patch instead of the object itself.
        """
        clean = _clean(patch)
        return self._door.do_and_wait(self._user, lambda desk: desk.patch(kind, name, clean, namespace, subresource))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        propagation: Propagation | None = None,
        grace_period: int | None = None,
    ) -> None:
        """Start the deletion of the object; ``wait_for(kind, name, "delete")`` waits until the object is gone.

        * ``kind``: the kind of the object.
        * ``name``: the name of the object.
        * ``namespace``: the namespace of the object; ignored for cluster-wide kinds.
        * ``propagation``: the policy for its dependents: ``"Background"``, ``"Foreground"``, ``"Orphan"``; by default,
          the policy of the kind.
        * ``grace_period``: the time for a pod on a node to end, in seconds; 0 forces the deletion.
        """
        self._door.do_and_wait(self._user, lambda desk: desk.delete(kind, name, namespace, propagation, grace_period))

    def wait_for(
        self,
        kind: str,
        name: str,
        until: Until = "create",
        *,
        namespace: str = "default",
        timeout: float = TIMEOUT,
    ) -> Obj:
        """Wait until the condition is true for the object; return the state for which it is true.

        * ``kind``: the kind of the object.
        * ``name``: the name of the object, which may not exist yet.
        * ``until``: a function of the object, for which a `LookupError` means: not yet; or as for ``kubectl wait``,
          ``"create"``, ``"delete"`` (returns the last state), ``"condition=Ready"``, ``"condition=Ready=False"``.
        * ``namespace``: the namespace of the object; ignored for cluster-wide kinds.
        * ``timeout``: the time to wait, in seconds.

        Raises `TimeoutError` with the last state if the condition does not become true in time; `ValueError` for an
        unknown condition.
        """
        condition = parse_condition(until)
        return self._door.enter_and_wait(
            lambda: wait(self._door, self._user, (kind, name, namespace), condition, timeout)
        )


class UserClient(Client):
    """Works with the objects as a user other than the administrator."""

    def __init__(self, door: Door, user: User, write_kubeconfig: Callable[[], pathlib.Path]) -> None:
        super().__init__(door, user)
        self._write_kubeconfig = write_kubeconfig

    @functools.cached_property
    def kubeconfig(self) -> pathlib.Path:
        """The path of the kubeconfig of this user, with a certificate; the cluster removes it in the end."""
        return self._write_kubeconfig()


def _read(manifests: Manifests) -> list[Any]:
    if isinstance(manifests, pathlib.Path):
        manifests = manifests.read_text()
    if not isinstance(manifests, str | Mapping):
        raise TypeError(
            "manifests are an object (a dict), a text in YAML, or a pathlib.Path of such a file, "
            f"not of the type {type(manifests).__name__!r}"
        )
    documents = list(yaml.safe_load_all(manifests)) if isinstance(manifests, str) else [manifests]
    objects = [item for document in documents for item in list_objects(document)]
    for item in objects:
        if not isinstance(item, Mapping):
            raise ValueError(f"there is no object in the YAML: {item!r:.80}; for a path, use pathlib.Path()")
        if not isinstance(item.get("metadata") or {}, Mapping):
            raise ValueError(f"the metadata is no object: {item['metadata']!r:.80}")
    return [_clean(item) for item in objects]


def list_objects(document: Any) -> list[Any]:
    """List the objects of a document: itself, its items if it is a list (``kind: List``), or none if it is empty."""
    if isinstance(document, Mapping) and document.get("kind") == "List":
        return list(document.get("items") or ())
    return [document] if document else []


def _clean(document: Any) -> Any:
    """Copy the document by encoding it, so that it is JSON-compatible, and shares nothing with the caller."""
    return codec.decode(codec.encode(document))


# Waiting for a state of an object: it is listed once, and watched from that version on, so that no state is missed.

# The maximal length of the last state in the message of a timeout, in characters.
_SHOWN: Final = 4000


async def wait(
    door: Door,
    user: User,
    place: tuple[str, str, str],
    condition: Condition,
    timeout: float,
) -> Obj:
    """Return the state that meets the condition, or the last one before the absence that meets it.

    The place is the kind, the name, and the namespace. Must run in the event loop of the cluster.
    """
    seen = _Seen()
    try:
        async with asyncio.timeout(timeout):
            while not await _look_and_watch(door, user, place, condition, seen):
                pass  # the history is forgotten, or the server is another one, so it begins anew
    except TimeoutError:
        raise TimeoutError(_explain(place, timeout, seen)) from None
    return seen.last


class _Seen:
    """The last known state of the object."""

    def __init__(self) -> None:
        self.last: Obj = {}
        self.exists = False

    def notice(self, obj: Obj | None) -> Obj | None:
        self.exists = obj is not None
        if obj is not None:
            self.last = obj
        return obj


async def _look_and_watch(
    door: Door,
    user: User,
    place: tuple[str, str, str],
    condition: Condition,
    seen: _Seen,
) -> bool:
    """Return whether the condition is met before the stream ends."""
    obj, version = await door.do(user, lambda desk: desk.look(*place))
    if condition(seen.notice(obj)):
        return True
    stream: Stream = await door.do(user, lambda desk: desk.watch(*place, version))
    async with contextlib.aclosing(stream.chunks()) as chunks:
        async for chunk in chunks:
            for line in chunk.splitlines():
                event = codec.decode(line)
                if event["type"] == "ERROR":
                    return False
                if condition(seen.notice(None if event["type"] == "DELETED" else event["object"])):
                    return True
    return False


def _explain(place: tuple[str, str, str], timeout: float, seen: _Seen) -> str:
    kind, name, namespace = place
    what = f"{kind} {name!r} in the namespace {namespace!r}"
    if not seen.exists:
        return f"{what} is not there after {timeout} seconds"
    state = {**seen.last, "metadata": {**seen.last["metadata"], "managedFields": None}}
    text = codec.encode(state).decode()
    return f"{what} is not as wanted after {timeout} seconds, but: {text[:_SHOWN]}{'...' * (len(text) > _SHOWN)}"


# Conditions to wait for: functions of the object, or the words of `kubectl wait --for`.

Until: TypeAlias = Callable[[Obj], Any] | str
"""A function of the object, or ``"create"``, ``"delete"``, ``"condition=Ready"``, ``"condition=Ready=False"``."""

Condition: TypeAlias = Callable[[Obj | None], bool]
"""Returns whether the condition is met by an object, or by its absence (none)."""


def parse_condition(until: Until) -> Condition:
    """Make a function from any form; raise `ValueError` for unknown words."""
    if not isinstance(until, str):
        return lambda obj: obj is not None and _holds(until, obj)
    word, _, rest = until.partition("=")
    kind, _, status = rest.partition("=")
    if until == "create":
        return lambda obj: obj is not None
    if until == "delete":
        return lambda obj: obj is None
    if word == "condition" and kind:
        return lambda obj: obj is not None and _has_condition(obj, kind, status or "True")
    raise ValueError(
        f'cannot wait for {until!r}: it must be "create", "delete", "condition=TYPE", "condition=TYPE=STATUS", '
        "or a function of the object"
    )


def _holds(until: Callable[[Obj], Any], obj: Obj) -> bool:
    """Call the function; an absent field is no error, as it may come later."""
    try:
        return bool(until(obj))
    except LookupError:
        return False


def _has_condition(obj: Obj, kind: str, status: str) -> bool:
    """Whether the object has the condition; as in kubectl, neither the type nor the status is case-sensitive."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(
        str(item.get("type")).lower() == kind.lower() and str(item.get("status")).lower() == status.lower()
        for item in conditions
    )
