"""
Applying: any handler brings the children of an object to the desired state, as often as it is called.

It is the server-side apply of Kubernetes: Kopf owns only the given fields. Fields that are no longer given are
removed; all other fields stay. See "Server-Side Apply" of the Kubernetes documentation.

Kopf writes nothing if nothing would change. A digest of the applied fields is kept on the child, so it is known after
a restart, too.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kopf._client.errors import APIConflictError, APINotFoundError
from kopf._client.http.api import APIClient, get_current_api, get_current_loop
from kopf._client.resources.discovery import discover
from kopf._controller.controller_registry import Place, get_current_controllers
from kopf._handlers.current_handler import current_cause
from kopf._kits.hierarchies import adopt
from kopf._kits.manifests import K8sObject, name_object, to_plain
from kopf._values import codec
from kopf._values.bodies import Body
from kopf._values.objects import KubeObject
from kopf._values.operator_error import OperatorError
from kopf._values.resources import Resource
from kopf._values.selectors import Selector

Obj = dict[str, Any]

APPLY_PATCH = "application/apply-patch+yaml"
MANAGER = "kopf"
DIGEST = "kopf.dev/applied-digest"
Check = Callable[[Place, KubeObject | None, bool], Awaitable[None]]
"""What must hold before an object is written: see :func:`apply_plain`."""

_MAX_REMEMBERED = 10_000
"""The number of objects whose applied state is remembered; each takes some 0.3 KiB."""

_MANAGER = re.compile(r'conflict with "([^"]*)"')
"""How the API server names the manager in the causes of a conflict."""


class ApplyConflictError(OperatorError):
    """
    The object is not changed, because others manage some of the fields.

    Either leave these fields out, or apply with ``force=True`` to take them over.
    """

    def __init__(self, name: str, conflicts: Mapping[str, str]) -> None:
        self.managers = " & ".join(f"{field} is managed by {manager!r}" for field, manager in conflicts.items())
        """The managers of the fields, in words."""
        super().__init__(
            f"{name} is not applied: {self.managers}. Leave the fields out, or take them over with force=True."
        )
        self.conflicts = dict(conflicts)
        """The managers of the fields, by the paths of the fields."""


def apply(
    child: K8sObject,
    /,
    *,
    owner: Mapping[str, Any] | None = None,
    is_owned: bool = True,
    force: bool = False,
    manager: str = MANAGER,
) -> Any:
    """
    Create or update the child as specified, and return the resulting object: a :class:`kopf.Body`.

    In coroutines, await the result. In synchronous handlers, the child is applied when the function returns.

    :param child: the desired fields: a dict, or an object of ``kubernetes``, ``kubernetes_asyncio``,
        ``pykube-ng``. It is not changed.
    :param owner: the owner of the child; by default, the handled object. The child is adopted as by
        :func:`kopf.adopt`, and gets the name of the owner if it has no name.
    :param is_owned: whether it has an owner; if not, it is applied unchanged.
    :param force: whether to take over the fields that others manage.
    :param manager: the field manager. The server removes the fields of this manager that are no longer given.
    :raises ApplyConflictError: if others manage some of the fields; the error names them.
    :raises LookupError: if the cluster has no such kind; if the call is outside of operators, or, without ``owner``,
        outside of handlers.
    :raises kopf.LoginError: if there are no credentials, e.g. in startup and login handlers.
    :raises kopf.APIError: if the server refuses.
    """
    desired = to_plain(child)
    if is_owned:
        adopt(desired, owner, strict=True)
    applying = apply_plain(get_current_api(), desired, force=force, manager=manager)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(applying, get_current_loop()).result()
    return applying


class _Outcome(NamedTuple):
    """The result of an applied object."""

    uid: str
    version: str
    digest: str
    fingerprint: int
    """The fingerprint of the given fields, in the form of the server."""


class Memory:
    """The known resources of the cluster, and the objects that one operator has applied."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        self._outcomes: OrderedDict[tuple[str, str], _Outcome] = OrderedDict()

    async def find_resource(self, api: APIClient, desired: Obj) -> Resource:
        """Find the resource of this kind, once. Raises :class:`LookupError` if there is no such kind."""
        api_version, kind = str(desired.get("apiVersion") or ""), str(desired.get("kind") or "")
        watched = get_current_controllers().resources
        resource = find_resource(watched, desired) or self._resources.get((api_version, kind))
        if resource is None:
            group, _, version = api_version.rpartition("/")
            discovery = await discover(api, [Selector(group=group, version=version, kind=kind)])
            resource = find_resource(discovery.resources, desired)
            if resource is None:
                raise LookupError(f"The cluster has no {kind!r} in {api_version!r}: is its definition installed?")
            self._resources[api_version, kind] = resource
        return resource

    def forget_resource(self, desired: Obj) -> None:
        """Forget the resource: it has disappeared or moved. The next call finds it again."""
        self._resources.pop((desired["apiVersion"], desired["kind"]), None)

    def has_applied(self, url: str, manager: str) -> bool:
        """Tell if an object of this name has been applied before."""
        return (url, manager) in self._outcomes

    def is_applied(self, url: str, manager: str, desired: Obj, current: KubeObject) -> bool:
        """Tell if the object is as it would be if it was applied."""
        head = current.head
        if (head.annotations or {}).get(DIGEST) != _get_digest(desired):
            return False
        known = self._outcomes.get((url, manager))
        if known is not None and (known.uid, known.digest) == (head.uid, _get_digest(desired)):
            if known.version != head.resourceVersion:
                if known.fingerprint != _take_fingerprint(current, desired):
                    return False
                self._outcomes[url, manager] = known._replace(version=head.resourceVersion)
            return True
        if _project(current, desired) == desired:
            self.note(url, manager, desired, current)
            return True
        return False

    def note(self, url: str, manager: str, desired: Obj, obj: KubeObject) -> None:
        """Remember the server's version of the object: the server can change the form of values, and add to lists."""
        key, head = (url, manager), obj.head
        fingerprint = _take_fingerprint(obj, desired)
        self._outcomes[key] = _Outcome(head.uid, head.resourceVersion, _get_digest(desired), fingerprint)
        self._outcomes.move_to_end(key)
        if len(self._outcomes) > _MAX_REMEMBERED:
            self._outcomes.popitem(last=False)


def find_resource(resources: Iterable[Resource], desired: Obj) -> Resource | None:
    """Find the resource of such an object among these."""
    kind, api_version = desired.get("kind"), desired.get("apiVersion")
    return next((item for item in resources if item.kind == kind and item.api_version == api_version), None)


_memories: weakref.WeakKeyDictionary[APIClient, Memory] = weakref.WeakKeyDictionary()


async def apply_plain(
    api: APIClient,
    desired: Obj,
    *,
    resource: Resource | None = None,
    force: bool = False,
    manager: str = MANAGER,
    check: Check | None = None,
) -> Body:
    """
    Apply what is complete already; the ``resource`` can be known.

    ``check`` raises an error if the object must not be applied: it gets its place, its current state, if it exists, and
    whether this operator has applied it before.
    If it exists no more by the time of the writing, or is another object of the same name, it is an error, too.
    """
    memory = _memories.setdefault(api, Memory())
    desired = _encode_texts(desired)
    metadata = desired.get("metadata") or {}
    if not metadata.get("name"):
        raise ValueError(f"The {desired.get('kind')} has no name: give it one, because it is applied repeatedly.")
    resource = resource or await memory.find_resource(api, desired)
    namespace = metadata.get("namespace") if resource.namespaced else None
    place = Place(resource, namespace, metadata["name"])
    url = resource.get_url(namespace=namespace, name=place.name)
    annotations = {**(metadata.get("annotations") or {}), DIGEST: _digest(desired)}
    desired = {**desired, "metadata": {**metadata, "annotations": annotations}}
    children = get_current_controllers().get_children(resource)
    found = None if children is None else children.find(namespace, place.name)
    current = await _read(api, url) if found is None else found
    if check is not None:
        await check(place, current, memory.has_applied(url, manager))
    if current is not None and memory.is_applied(url, manager, desired, current):
        return Body(current.for_users())
    payload = desired
    if check is not None and current is not None:
        payload = {**desired, "metadata": {**desired["metadata"], "uid": current.head.uid}}
    params = {"fieldManager": manager, **({"force": "true"} if force else {})}
    try:
        raw = await api.patch(url, payload=payload, content_type=APPLY_PATCH, params=params)
    except APINotFoundError:
        memory.forget_resource(desired)
        raise
    except APIConflictError as e:
        raise _explain_conflict(e, desired) from e
    obj = KubeObject.from_json(raw)
    memory.note(url, manager, desired, obj)
    if children is not None:
        cause = current_cause.get(None)
        children.note(obj, None if cause is None else cause.body.object.head.uid)
    return Body(obj)


def _encode_texts(desired: Obj) -> Obj:
    """
    Move the ``stringData`` of a Secret to its ``data``, as the server does anyway.

    Otherwise, edits of these fields would not be noticed, and the server would not remove the fields in the end.
    """
    texts = desired.get("stringData")
    is_secret = (desired.get("apiVersion"), desired.get("kind")) == ("v1", "Secret")
    if not is_secret or not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        return desired  # if the texts are wrong, the server says how
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    desired = {**desired, "data": {**(desired.get("data") or {}), **encoded}}
    del desired["stringData"]
    return desired


def _digest(desired: Obj) -> str:
    return hashlib.blake2b(codec.encode_sorted(desired), digest_size=8).hexdigest()


def _get_digest(desired: Obj) -> str:
    return str(desired["metadata"]["annotations"][DIGEST])


def _take_fingerprint(obj: KubeObject, desired: Obj) -> int:
    return hash(codec.encode_sorted(_project(obj, desired)))


def _project(value: Any, pattern: Any) -> Any:
    """Take those fields of the value that the pattern has. Lists of other lengths are taken as a whole."""
    if isinstance(pattern, Mapping) and isinstance(value, Mapping):
        return {key: _project(value[key], item) for key, item in pattern.items() if key in value}
    if isinstance(pattern, list) and isinstance(value, list) and len(pattern) == len(value):
        return [_project(*pair) for pair in zip(value, pattern, strict=True)]
    return value


async def _read(api: APIClient, url: str) -> KubeObject | None:
    try:
        return KubeObject.from_json(await api.get(url))
    except APINotFoundError:
        return None


def _explain_conflict(error: APIConflictError, desired: Obj) -> Exception:
    causes = (error.details or {}).get("causes") or ()
    found = {str(item.get("field")): match[1] for item in causes if (match := _MANAGER.search(item.get("message", "")))}
    return ApplyConflictError(name_object(desired), found) if found else error
