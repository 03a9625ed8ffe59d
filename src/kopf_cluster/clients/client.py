"""
Clients of the cluster in the same process: plain dicts in and out, synchronous and asynchronous.

They ask the API as such, with no HTTP in between. So, they are reviewed by webhooks, and limited by roles, but neither
disturbed by faults nor counted.
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
from kopf_cluster.clients import operations
from kopf_cluster.clients.operations import Door, Propagation
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.requests import Stream, User

TIMEOUT: Final = 10.0
"""How long is waited by default, in seconds."""

Manifests: TypeAlias = Mapping[str, Any] | str | pathlib.Path
Objs: TypeAlias = list[Obj]


class AsyncClient:
    """Works with the objects as one user of the cluster, from any event loop.

    The methods are those of `Client`, which tells about them.
    """

    def __init__(self, door: Door, user: User) -> None:
        self._door = door
        self._user = user

    async def get(self, kind: str, name: str, *, namespace: str = "default") -> Obj:
        return await self._door.do(self._user, operations.get(kind, name, namespace))

    async def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Objs:
        return await self._door.do(self._user, operations.list_(kind, namespace, labels, fields))

    async def create(self, manifest: Mapping[str, Any]) -> Obj:
        return await self._door.do(self._user, operations.create(_clean(manifest)))

    async def apply(self, manifests: Manifests, *, admission: bool = True) -> Objs:
        return [
            await self._door.do(self._user, operations.apply(manifest), admission=admission)
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
        return await self._door.do(self._user, operations.patch(kind, name, _clean(patch), namespace, subresource))

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        propagation: Propagation | None = None,
        grace_period: int | None = None,
    ) -> None:
        await self._door.do(self._user, operations.delete(kind, name, namespace, propagation, grace_period))

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

    Kinds are called by any name that kubectl takes: ``pods``, ``pod``, ``po``, ``Pod``, ``deployments.apps``,
    ``deployments.v1.apps``. Refusals are raised as `APIStatus`, with the message of the server.
    """

    def __init__(self, door: Door, user: User) -> None:
        self._door = door
        self._user = user
        self.aio = AsyncClient(door, user)
        """The same for coroutines: ``await cluster.aio.get(...)``."""

    def get(self, kind: str, name: str, *, namespace: str = "default") -> Obj:
        """Give the object."""
        return self._door.do_and_wait(self._user, operations.get(kind, name, namespace))

    def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
    ) -> Objs:
        """Give the objects of one namespace, or of all of them by default.

        * ``kind``: what to list.
        * ``namespace``: from which namespace.
        * ``labels``: a label selector, e.g. ``app=web,tier!=cache``.
        * ``fields``: a field selector, e.g. ``metadata.name=one``.
        """
        return self._door.do_and_wait(self._user, operations.list_(kind, namespace, labels, fields))

    def create(self, manifest: Mapping[str, Any]) -> Obj:
        """Create the object, in the namespace ``default`` if it does not say where; give it as it is created."""
        return self._door.do_and_wait(self._user, operations.create(_clean(manifest)))

    def apply(self, manifests: Manifests, *, admission: bool = True) -> Objs:
        """Create the objects, or merge the manifests into existing ones; give their new states.

        * ``manifests``: one manifest as a dict; or a text with any number of YAML documents; or a path to such a file.
        * ``admission``: whether admission webhooks are asked; otherwise, nobody is.
        """
        return [
            self._door.do_and_wait(self._user, operations.apply(manifest), admission=admission)
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
        """Change the object, or its subresource, e.g. ``status``; give the new state.

        * ``kind``: what to patch.
        * ``name``: which one to patch.
        * ``patch``: what to merge into the object if it is a dict; the operations of a JSON-patch if it is a list.
        * ``namespace``: where it is.
        * ``subresource``: what to patch instead of the object as such.
        """
        return self._door.do_and_wait(self._user, operations.patch(kind, name, _clean(patch), namespace, subresource))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        propagation: Propagation | None = None,
        grace_period: int | None = None,
    ) -> None:
        """Begin the deletion of the object; to wait until it is gone: ``wait_for(kind, name, "delete")``.

        * ``kind``: what to delete.
        * ``name``: which one to delete.
        * ``namespace``: where it is.
        * ``propagation``: what happens to its dependents: ``"Background"``, ``"Foreground"``, ``"Orphan"``.
        * ``grace_period``: how many seconds a pod on a node has to end; with 0, it goes at once, as by force.
        """
        self._door.do_and_wait(self._user, operations.delete(kind, name, namespace, propagation, grace_period))

    def wait_for(
        self,
        kind: str,
        name: str,
        until: Until = "create",
        *,
        namespace: str = "default",
        timeout: float = TIMEOUT,
    ) -> Obj:
        """Wait until the condition is true for the object; give the state of which it is true.

        * ``kind``: what to wait for.
        * ``name``: which one to wait for; it does not have to exist yet.
        * ``until``: a function of the object, for which missing keys mean: not yet; or as for ``kubectl wait``,
          ``"create"``, ``"delete"`` (gives the last state), ``"condition=Ready"``, ``"condition=Ready=False"``.
        * ``namespace``: where it is.
        * ``timeout``: how long to wait, in seconds.

        Raises `TimeoutError` with the last state, if it does not come true in time.
        """
        condition = parse_condition(until)
        return self._door.enter_and_wait(
            lambda: wait(self._door, self._user, (kind, name, namespace), condition, timeout)
        )


class UserClient(Client):
    """Works with the objects as somebody else than the administrator."""

    def __init__(self, door: Door, user: User, write_kubeconfig: Callable[[], pathlib.Path]) -> None:
        super().__init__(door, user)
        self._write_kubeconfig = write_kubeconfig

    @functools.cached_property
    def kubeconfig(self) -> pathlib.Path:
        """The path of the kubeconfig of this user, with a certificate; it is removed with the cluster."""
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
    for document in documents:
        if document and not isinstance(document, Mapping):
            raise ValueError(f"there is no object in the YAML: {document!r:.80}; for a path, use pathlib.Path()")
    return [_clean(document) for document in documents if document]


def _clean(document: Any) -> Any:
    """Pass through the encoding and back, so that only JSON-compatible values come in, and never shared ones."""
    return codec.decode(codec.encode(document))


# Waiting for an object to be as wanted: it is looked at once, and then watched from there, so that no state is missed.

# How much of the last state is shown when the time is over, in characters.
_SHOWN: Final = 4000


async def wait(
    door: Door,
    user: User,
    place: tuple[str, str, str],
    condition: Condition,
    timeout: float,
) -> Obj:
    """Give the state that meets the condition, or the last one before the absence that meets it.

    The place is the kind, the name, and the namespace. It is to be called in the event loop of the cluster.
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
    """What is known of the object."""

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
    """Tell whether the condition is met before the stream ends."""
    look = await door.do(user, operations.look(*place))
    if condition(seen.notice(look.obj)):
        return True
    stream: Stream = await door.do(user, operations.watch(*place, look.version))
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


# What can be waited for: any condition on an object, or what `kubectl wait --for` knows by words.

Until: TypeAlias = Callable[[Obj], Any] | str
"""A function of the object, or ``"create"``, ``"delete"``, ``"condition=Ready"``, ``"condition=Ready=False"``."""

Condition: TypeAlias = Callable[[Obj | None], bool]
"""Tells whether it has come true, for an object or for its absence."""


def parse_condition(until: Until) -> Condition:
    """Make one function of all forms; raise `ValueError` if the words are not known."""
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
        f'{until!r} cannot be waited for: it is neither "create", nor "delete", nor "condition=TYPE", '
        'nor "condition=TYPE=STATUS", nor a function of the object'
    )


def _holds(until: Callable[[Obj], Any], obj: Obj) -> bool:
    """A field that is not there yet is what is usually waited for, so it is no error."""
    try:
        return bool(until(obj))
    except LookupError:
        return False


def _has_condition(obj: Obj, kind: str, status: str) -> bool:
    """As for kubectl, neither the type nor the status is case-sensitive."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(
        str(item.get("type")).lower() == kind.lower() and str(item.get("status")).lower() == status.lower()
        for item in conditions
    )
