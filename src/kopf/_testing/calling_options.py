"""The options of a call of a handler in a test: the state of the object and of the world, as far as it matters."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Any, TypedDict, cast

from kopf._controller.indexing.indexers import Indexer
from kopf._controller.indexing.indices import Index
from kopf._handlers.handler_errors import ErrorsMode
from kopf._handlers.outcomes import Attempt, Outcome
from kopf._handlers.registry import OperatorRegistry
from kopf._settings.settings import OperatorSettings
from kopf._testing.given_objects import GivenObject
from kopf._values.bodies import RawEventType
from kopf._values.fields import FieldSpec
from kopf._values.reasons import Operation
from kopf._values.resources import Resource
from kopf._values.reviews import Headers, SSLPeer
from kopf._values.similar_names import find_similar_names

STOP_AFTER = 1.0
_NULLABLE = frozenset({"memo", "type"})
"""Where ``None`` is a value like any other."""


class DeclarationOptions(TypedDict, total=False):
    """The options of decorators, for functions that are not declared; or instead of what they are declared with."""

    param: Any
    field: FieldSpec
    errors: ErrorsMode
    timeout: float
    retries: int
    backoff: float


class AdmissionOptions(TypedDict, total=False):
    """What is reviewed; for handlers of admission."""

    operation: Operation
    """By default, ``"UPDATE"`` if there is an old state, and ``"CREATE"`` otherwise."""
    subresource: str
    dryrun: bool
    userinfo: Mapping[str, Any]
    """Who makes the change; ``somebody`` by default."""
    headers: Headers
    sslpeer: SSLPeer


class CallingOptions(DeclarationOptions, AdmissionOptions, total=False):
    """All options of :func:`run_handler`."""

    reason: str
    """For what to call it: ``"create"``, ``"update"``, ``"timer"``, … By default, for what it is declared for; if it
    is declared for several changes, or for nothing, then for what has happened to the object by its states."""
    id: str
    """Which of the declarations of the function to take; for functions that are not declared, how to call it."""
    registry: OperatorRegistry
    """Where it is declared; in the default registry by default."""
    old: GivenObject | None
    """The last handled state, for updates. By default, that of the body's annotations, if it is there."""
    retry: int
    """How many attempts there were before."""
    started: datetime.datetime
    """When the first attempt began; by default, now, or as the ``runtime`` says."""
    runtime: float | datetime.timedelta
    """How much time has passed since then; in seconds if it is a number."""
    memo: Any
    """The memo of the object; by default, an empty one."""
    indices: Mapping[str, Any]
    """The indices by their names, e.g. ``{"pods": {"key": ["value", "value"]}}``."""
    resource: Resource
    """Of which resource the object is; by default, it is guessed."""
    settings: OperatorSettings
    """The settings of the operator."""
    type: RawEventType
    """The type of the raw event; ``"ADDED"`` by default."""
    stop_after: float
    """In how many seconds to stop a daemon that does not exit itself; 1 by default. With 0, it is stopped at once."""


def check_options(options: CallingOptions) -> CallingOptions:
    """Leave out those options that are not given: they are ``None``. Raises :class:`TypeError` for unknown options."""
    for name in options:
        if name not in CallingOptions.__annotations__:
            guesses = find_similar_names(name, CallingOptions.__annotations__)
            hint = f" Did you mean {guesses[0]!r}?" if guesses else ""
            raise TypeError(f"There is no such option: {name!r}.{hint} Additional arguments go to indices={{…}}.")
    given: Any = {name: value for name, value in options.items() if value is not None or name in _NULLABLE}
    return cast(CallingOptions, given)


def pick_declaration_options(options: CallingOptions) -> dict[str, Any]:
    """Pick those options that are of the declarations."""
    return {name: value for name, value in options.items() if name in DeclarationOptions.__annotations__}


def make_attempt(options: CallingOptions) -> Attempt:
    """Make the attempt that the options describe; the first one if they do not."""
    now = datetime.datetime.now(datetime.UTC)
    runtime = options.get("runtime", 0)
    passed = runtime if isinstance(runtime, datetime.timedelta) else datetime.timedelta(seconds=runtime)
    started = options.get("started", now - passed)
    return Attempt(options.get("retry", 0), started, passed if "runtime" in options else now - started)


def make_indices(given: Mapping[str, Any], resource: Resource) -> Mapping[str, Any]:
    """Make real indices of mappings with collections of values; what is anything else, is an argument as it is."""
    return {
        name: _make_index(content, resource) if isinstance(content, Mapping) and type(content) is not Index else content
        for name, content in given.items()
    }


def _make_index(content: Mapping[Any, Collection[Any]], resource: Resource) -> Index[Any, Any]:
    indexer = Indexer()
    attempt = Attempt.first(datetime.datetime.now(datetime.UTC))
    for number, (key, values) in enumerate(content.items()):
        if isinstance(values, str) or not isinstance(values, Collection):
            raise TypeError(f"Indices have collections of values under their keys, but under {key!r} it is {values!r}.")
        for order, value in enumerate(values):
            owner = (resource, f"{number}-{order}")
            indexer.accept(owner, Outcome(True, result={key: value}), attempt, attempt.started)
    return indexer.index
