"""
The arguments of tests that call a handler: the object, and the state of the world, as far as they matter.

Kopf invents the rest of the object, always in the same way, so that tests can rely on it: ``default/example`` of the
kind for which the handler is declared.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, TypedDict, cast

import yaml

from kopf._controller.indexing.indexers import Indexer
from kopf._controller.indexing.indices import Index
from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.handler_errors import ErrorsMode
from kopf._handlers.registry import OperatorRegistry
from kopf._kits.hierarchies import CLUSTER_SCOPED_KINDS
from kopf._settings.settings import OperatorSettings
from kopf._values import codec
from kopf._values.backoffs import ExponentialBackoff
from kopf._values.bodies import RawEventType
from kopf._values.fields import FieldSpec
from kopf._values.objects import KubeObject
from kopf._values.patches import thaw
from kopf._values.reasons import Operation
from kopf._values.resources import Resource
from kopf._values.reviews import Headers, SSLPeer
from kopf._values.selectors import Selector
from kopf._values.similar_names import find_similar_names

STOP_AFTER = 1.0
_NULLABLE = frozenset({"memo", "type"})
"""The options for which ``None`` is a usual value."""
GivenObject = Mapping[str, Any] | str | pathlib.Path
"""An object, or a part of the object: a dict, a text in YAML, or the path of a YAML file."""

NAME = "example"
NAMESPACE = "default"
UID = "00000000-0000-0000-0000-000000000001"
GROUP, VERSION = "example.com", "v1"


class DeclarationOptions(TypedDict, total=False):
    """The options of decorators, for functions without a decorator, or to replace the options of the decorator."""

    param: Any
    field: FieldSpec
    errors: ErrorsMode
    timeout: float
    retries: int
    backoff: float | ExponentialBackoff


class AdmissionOptions(TypedDict, total=False):
    """The reviewed request, for admission handlers."""

    operation: Operation
    """By default, ``"UPDATE"`` if there is an old state, and ``"CREATE"`` otherwise."""
    subresource: str
    dryrun: bool
    userinfo: Mapping[str, Any]
    """The user that makes the change; ``somebody`` by default."""
    headers: Headers
    sslpeer: SSLPeer


class CallingOptions(DeclarationOptions, AdmissionOptions, total=False):
    """All options of :func:`run_handler`."""

    reason: str
    """The reason of the call: ``"create"``, ``"update"``, ``"timer"``, … By default, the declared one; if the handler
    is declared for several changes, or not at all, Kopf detects the reason from the states of the object."""
    id: str
    """The id of the declaration to use; for functions without a declaration, the id of the handler."""
    registry: OperatorRegistry
    """The registry with the declaration; the default one by default."""
    old: GivenObject | None
    """The last handled state, for updates; by default, from the body's annotations, if they have it."""
    retry: int
    """The number of attempts before; 0 by default."""
    started: datetime.datetime
    """The time of the first attempt; by default, now, or ``runtime`` ago."""
    runtime: float | datetime.timedelta
    """The time since the first attempt; in seconds if it is a number."""
    memo: Any
    """The memo of the object; by default, an empty one."""
    indices: Mapping[str, Any]
    """The indices by their names, e.g. ``{"pods": {"key": ["value", "value"]}}``."""
    resource: Resource
    """The resource of the object; by default, Kopf guesses it."""
    settings: OperatorSettings
    """The settings of the operator."""
    type: RawEventType
    """The type of the raw event; ``"ADDED"`` by default."""
    stop_after: float
    """The delay before a running daemon is stopped, in seconds; 1 by default. With 0, it is stopped at once."""


def check_names(given: Collection[str], known: type, advice: str = "") -> None:
    """Raise :class:`TypeError`, with the advice, if there is an option that is not in the ``TypedDict``."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            guesses = find_similar_names(name, names)
            hint = f" Did you mean {guesses[0]!r}?" if guesses else f" The options are: {', '.join(names)}."
            raise TypeError(f"There is no such option: {name!r}.{hint}{advice}")


def check_options(options: CallingOptions) -> CallingOptions:
    """Leave out the options that are ``None``: they are not given. Raises :class:`TypeError` for unknown options."""
    check_names(options, CallingOptions, " Additional arguments go to indices={…}.")
    given: Any = {name: value for name, value in options.items() if value is not None or name in _NULLABLE}
    return cast(CallingOptions, given)


def pick_declaration_options(options: CallingOptions) -> dict[str, Any]:
    """Pick the options of declarations."""
    return {name: value for name, value in options.items() if name in DeclarationOptions.__annotations__}


def make_attempt(options: CallingOptions) -> Attempt:
    """Make the attempt that the options describe; the first one if they do not."""
    now = datetime.datetime.now(datetime.UTC)
    runtime = options.get("runtime", 0)
    passed = runtime if isinstance(runtime, datetime.timedelta) else datetime.timedelta(seconds=runtime)
    started = options.get("started", now - passed)
    return Attempt(options.get("retry", 0), started, passed if "runtime" in options else now - started)


def make_indices(given: Mapping[str, Any], resource: Resource) -> Mapping[str, Any]:
    """Make real indices of mappings with collections of values; other values become arguments unchanged."""
    return {
        name: _make_index(content, resource) if isinstance(content, Mapping) and type(content) is not Index else content
        for name, content in given.items()
    }


def _make_index(content: Mapping[Any, Collection[Any]], resource: Resource) -> Index[Any, Any]:
    indexer = Indexer()
    attempt = Attempt.first(datetime.datetime.now(datetime.UTC))
    for number, (key, values) in enumerate(content.items()):
        if isinstance(values, str) or not isinstance(values, Collection):
            raise TypeError(f"Indices need a collection of values under each key, but {key!r} has {values!r}.")
        for order, value in enumerate(values):
            owner = (resource, f"{number}-{order}")
            indexer.accept(owner, Outcome(True, result={key: value}), attempt, attempt.started)
    return indexer.index


def read_object(given: GivenObject | None) -> dict[str, Any]:
    """Read the given object. Raises :class:`ValueError` if it is not one object."""
    if given is None:
        return {}
    document: Mapping[str, Any] = given if isinstance(given, Mapping) else _read_yaml(given)
    content: dict[str, Any] = codec.decode(codec.encode(thaw(document)))  # with no dates & suchlike: JSON has none
    return content


def _read_yaml(given: str | pathlib.Path) -> Mapping[str, Any]:
    text = given.read_text() if isinstance(given, pathlib.Path) else given
    match [document for document in yaml.safe_load_all(text) if document]:
        case [dict() as document]:
            return document
        case documents:
            raise ValueError(f"There must be one object in the YAML, not {len(documents)} documents: {given!r}.")


def guess_resource(content: Mapping[str, Any], selector: Selector | None) -> Resource:
    """Guess the resource of the object from its content, and from the declaration of the handler."""
    group, _, version = str(content.get("apiVersion") or "").rpartition("/")
    names = () if selector is None else (selector.plural, selector.singular, selector.kind, selector.any_name)
    name = next((item for item in names if isinstance(item, str)), "Example")
    kind = str(content.get("kind") or (name if name[:1].isupper() else name.removesuffix("s").capitalize()))
    plural = name if name.islower() and name.endswith("s") else f"{kind.lower()}s"
    if not version:
        group = GROUP if selector is None or selector.group is None else selector.group
        version = VERSION if selector is None or selector.version is None else selector.version
    is_namespaced = (group, kind) not in CLUSTER_SCOPED_KINDS
    return Resource(group, version, plural, kind, kind.lower(), namespaced=is_namespaced)


def complete(content: Mapping[str, Any], resource: Resource, *, is_deleted: bool = False) -> dict[str, Any]:
    """Add the missing kind, names, and uid; also the time of the deletion if the object is deleted."""
    given = content.get("metadata") or {}
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": UID, **given}
    if resource.namespaced is False and "namespace" not in given:
        del metadata["namespace"]
    if is_deleted:
        metadata.setdefault("deletionTimestamp", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    return {"apiVersion": resource.api_version, "kind": resource.kind, **content, "metadata": metadata}


def complete_previous(previous: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the given previous state of the same object."""
    identity = {key: content["metadata"].get(key) for key in ("name", "namespace", "uid")}
    metadata = {**identity, **(previous.get("metadata") or {})}
    return {"apiVersion": content["apiVersion"], "kind": content["kind"], **previous, "metadata": metadata}


def make_object(content: Mapping[str, Any]) -> KubeObject:
    """Make the object as it would arrive from the API. Raises :class:`ValueError` if its metadata are malformed."""
    return KubeObject.from_json(codec.encode(content))
