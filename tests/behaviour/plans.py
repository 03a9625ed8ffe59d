"""
Random handlers: what they are declared for, how they end, and a journal of everything that they were called for.

A plan is a description of a handler, out of which the handler is made anew for every life of the operator.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import kopf
from tests.behaviour.objects import PREFIX, Obj

Kind = Literal[
    "create",
    "update",
    "change",
    "parent",
    "field",
    "status",
    "deep",
    "resume",
    "delete",
    "optional-delete",
    "event",
    "daemon",
    "quitter",
    "timer",
    "index",
]
Filter = Literal["none", "label", "annotation", "when"]
Ending = Literal["ok", "temporary", "arbitrary", "permanent"]
Effect = Literal["none", "result", "status", "fns", "fns-spec", "spec", "label", "annotation", "leak"]

INTERVAL = 40.0
CHANGING = {"create", "update", "change", "parent", "field", "status", "deep", "resume", "delete", "optional-delete"}
OWN = "own-"
"""With what all the fields begin that the handlers add to the objects."""
LEAK = "leak"
"""What the handlers put into the values they are given; nobody else may see it."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """One handler."""

    kind: Kind
    filter: Filter = "none"
    script: tuple[Ending, ...] = ()
    """How the attempts end; all further ones succeed."""
    retries: int | None = None
    is_async: bool = True
    duration: float = 0
    effect: Effect = "none"
    number: int = 0

    @property
    def id(self) -> str:
        return f"{self.kind}{self.number}".replace("-", "")

    def matches(self, obj: Obj) -> bool:
        """Whether the handler is for the object as it is."""
        return self._has_field(obj) and self._satisfies_filter(obj)

    def _has_field(self, obj: Obj) -> bool:
        match self.kind:
            case "field":
                return obj["spec"].get("x") is not None
            case "status":
                return obj.get("status") is not None
            case "deep":
                return ((obj.get("status") or {}).get("deep") or {}).get("one") is not None
            case _:
                return True

    def _satisfies_filter(self, obj: Obj) -> bool:
        match self.filter:
            case "label":
                return (obj["metadata"].get("labels") or {}).get("mark") == "on"
            case "annotation":
                return "mark" in (obj["metadata"].get("annotations") or {})
            case "when":
                return is_odd(obj["spec"])
            case _:
                return True

    def get_filters(self) -> dict[str, Any]:
        match self.filter:
            case "label":
                return {"labels": {"mark": "on"}}
            case "annotation":
                return {"annotations": {"mark": kopf.PRESENT}}
            case "when":
                return {"when": lambda spec, **_: is_odd(spec)}
            case _:
                return {}

    def get_ending(self, retry: int) -> Ending:
        return self.script[retry] if retry < len(self.script) else "ok"

    @property
    def limit(self) -> int | None:
        """How many attempts there can be; there is no such limit for sub-handlers."""
        return None if self.kind == "parent" else self.retries

    def is_final(self, retry: int) -> bool:
        is_last = self.limit is not None and retry + 1 >= self.limit
        return is_last or self.get_ending(retry) in ("ok", "permanent")

    def get_state(self, obj: Mapping[str, Any]) -> Any:
        """What of the object matters for the handler."""
        status = obj.get("status", {})
        match self.kind:
            case "field":
                return obj.get("spec", {}).get("x")
            case "status":
                return {key: to_plain(status[key]) for key in ("foreign", "deep") if key in status}
            case "deep":
                return status.get("deep", {}).get("one")
            case _:
                return get_state(obj)

    @property
    def blocks_deletion(self) -> bool:
        return self.kind in ("delete", "daemon", "quitter", "timer")

    @property
    def can_be_over(self) -> bool:
        """Whether it is a daemon or a timer that exits, or fails for good, while the object exists."""
        is_limited = "permanent" in self.script or self.retries is not None
        return self.kind == "quitter" or (self.kind in ("daemon", "timer") and is_limited)


def is_odd(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("x", 0) % 2)


def get_state(obj: Mapping[str, Any]) -> Any:
    """What of the object is essential for the framework; the traces of the framework are not."""
    meta = obj.get("metadata", {})
    annotations = meta.get("annotations") or {}
    return {
        "spec": to_plain(obj.get("spec", {})),
        "labels": dict(meta.get("labels") or {}),
        "annotations": {key: value for key, value in annotations.items() if not key.startswith(f"{PREFIX}/")},
    }


def to_plain(value: Any) -> Any:
    """Copy the value deeply, whatever views it consists of."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


@dataclasses.dataclass
class Call:
    """One call of a handler."""

    life: int
    plan: Plan
    id: str
    uid: str
    version: int
    reason: str | None
    state: Any
    time: float
    is_final: bool = False


class ArbitraryError(Exception):
    """What the handlers fail with, if they fail arbitrarily."""


class Life:
    """One life of the operator, as its handlers see it: they find it in their memos."""

    def __init__(self, number: int, journal: list[Call]) -> None:
        self.number = number
        self.journal = journal
        self.indices: dict[str, Any] = {}
        self.daemons: dict[tuple[str, str], int] = {}
        """How many instances are running now, by the handler & the object."""
        self.overlaps: list[tuple[str, str]] = []
        self.starts: collections.Counter[tuple[str, str]] = collections.Counter()
        """How often those daemons were started that exit on their own, by the handler & the object."""
        self._loop = asyncio.get_running_loop()

    def begin(self, plan: Plan, id: str, kwargs: Mapping[str, Any]) -> Call:
        """Note the call of a handler."""
        body = kwargs["body"]
        version, state = int(body["metadata"]["resourceVersion"]), plan.get_state(body)
        reason = None if kwargs.get("reason") is None else str(kwargs["reason"].value)
        call = Call(self.number, plan, id, kwargs["uid"], version, reason, state, self._loop.time())
        self.remember_indices(kwargs)
        self.journal.append(call)
        return call

    def remember_indices(self, kwargs: Mapping[str, Any]) -> None:
        self.indices = {key: value for key, value in kwargs.items() if key.startswith("index")}


def declare(plan: Plan, resource: str, registry: kopf.OperatorRegistry) -> None:
    """Make the handler."""
    options: dict[str, Any] = {"id": plan.id, "registry": registry, **plan.get_filters()}
    if plan.kind not in ("event", "index"):
        options |= {"retries": plan.limit, "backoff": 3}
    fn = _make_fn(plan)
    for decorator, extras in _DECORATORS[plan.kind]:
        decorator(resource, **options, **extras)(fn)


def _make_fn(plan: Plan) -> Callable[..., Any]:
    if plan.kind == "index":
        return lambda name, spec, **_: {name: spec.get("x")}
    if plan.kind == "daemon":
        return _make_daemon(plan)
    if plan.kind == "quitter":
        return _make_quitter(plan)
    if plan.kind == "parent":
        return _make_parent(plan)

    async def async_fn(**kwargs: Any) -> Any:
        call = kwargs["memo"].life.begin(plan, plan.id, kwargs)
        await asyncio.sleep(plan.duration)
        return _end(call, plan, kwargs)

    def sync_fn(**kwargs: Any) -> Any:
        call = kwargs["memo"].life.begin(plan, plan.id, kwargs)
        time.sleep(plan.duration)
        return _end(call, plan, kwargs)

    return async_fn if plan.is_async else sync_fn


def _make_daemon(plan: Plan) -> Callable[..., Any]:
    async def daemon(uid: str, stopped: kopf.AsyncDaemonStopperChecker, **kwargs: Any) -> None:
        life, key = kwargs["memo"].life, (plan.id, uid)
        life.remember_indices(kwargs)
        if plan.get_ending(kwargs["retry"]) in ("temporary", "arbitrary"):
            _fail(plan.get_ending(kwargs["retry"]))
        life.daemons[key] = life.daemons.get(key, 0) + 1
        if life.daemons[key] > 1:
            life.overlaps.append(key)
        try:
            await stopped.wait()
            await asyncio.sleep(plan.duration)
        finally:
            life.daemons[key] -= 1

    return daemon


def _make_quitter(plan: Plan) -> Callable[..., Any]:
    async def quitter(uid: str, **kwargs: Any) -> None:
        if not kwargs["retry"]:
            kwargs["memo"].life.starts[plan.id, uid] += 1
        await asyncio.sleep(plan.duration)
        if plan.get_ending(kwargs["retry"]) != "ok":
            _fail(plan.get_ending(kwargs["retry"]))

    return quitter


def _make_parent(plan: Plan) -> Callable[..., Any]:
    """The sub-handlers follow the script, the parent only waits for them."""

    def make_sub(id: str) -> Callable[..., Any]:
        async def fn(**kwargs: Any) -> None:
            call = kwargs["memo"].life.begin(plan, id, kwargs)
            await asyncio.sleep(plan.duration)
            _end(call, plan, kwargs)

        return fn

    async def parent(**kwargs: Any) -> None:
        await kopf.execute(fns={name: make_sub(f"{plan.id}/{name}") for name in "ab"})
        call = kwargs["memo"].life.begin(plan, plan.id, kwargs)
        call.is_final = True

    return parent


def _end(call: Call, plan: Plan, kwargs: Mapping[str, Any]) -> Any:
    """Note that the call has ended: by the dead, this is never reached."""
    ending = plan.get_ending(kwargs["retry"]) if plan.kind != "event" else "ok"
    call.is_final = plan.is_final(kwargs["retry"])
    if ending != "ok":
        _fail(ending)
    return _make_effect(plan, kwargs)


def _fail(ending: Ending) -> None:
    match ending:
        case "temporary":
            raise kopf.TemporaryError("not yet", delay=5)
        case "permanent":
            raise kopf.PermanentError("never")
        case _:
            raise ArbitraryError("boom")


def _make_effect(plan: Plan, kwargs: Mapping[str, Any]) -> Any:
    life: int = kwargs["memo"].life.number
    patch, key, x = kwargs["patch"], f"{OWN}{plan.id}", kwargs["body"]["spec"].get("x")
    match plan.effect:
        case "result":
            return {"life": life}
        case "status":
            patch.status[f"by-{plan.id}"] = life
        case "fns":
            patch.fns.append(lambda body: body.setdefault("status", {}).update({f"fn-{plan.id}": [life]}))
        case "fns-spec":
            patch.fns.append(lambda body: body["spec"].update({key: {"list": [x]}}))
        case "spec":
            patch.spec[key] = {"list": [x]}
        case "label":
            patch.meta.labels[key] = f"x{x}"
        case "annotation":
            patch.meta.annotations[key] = f"x{x}"
        case "leak":
            _leak(kwargs)
    return None


def _leak(kwargs: Mapping[str, Any]) -> None:
    """Spoil everything that the handler is given, as deep as possible: it may be refused, but never seen by others."""
    given = [kwargs.get(name) for name in ("spec", "status", "meta", "body", "labels", "annotations", "old", "new")]
    given += [value for item in kwargs.get("diff") or () for value in item[2:]]
    while given:
        value = given.pop()
        with contextlib.suppress(TypeError, AttributeError, NotImplementedError):
            if isinstance(value, Mapping):
                given += value.values()
                value[LEAK] = LEAK  # type: ignore[index]  # that it is read-only, is what is tried
            elif isinstance(value, list | tuple):
                given += value
                value.append(LEAK)  # type: ignore[union-attr]


_DECORATORS: Mapping[Kind, list[tuple[Callable[..., Any], Mapping[str, Any]]]] = {
    "create": [(kopf.on.create, {})],
    "update": [(kopf.on.update, {})],
    "change": [(kopf.on.create, {}), (kopf.on.update, {})],
    "parent": [(kopf.on.create, {}), (kopf.on.update, {})],
    "field": [(kopf.on.field, {"field": "spec.x"})],
    "status": [(kopf.on.field, {"field": "status"})],
    "deep": [(kopf.on.field, {"field": "status.deep.one"})],
    "resume": [(kopf.on.resume, {})],
    "delete": [(kopf.on.delete, {})],
    "optional-delete": [(kopf.on.delete, {"optional": True})],
    "event": [(kopf.on.event, {})],
    "daemon": [(kopf.daemon, {})],
    "quitter": [(kopf.daemon, {})],
    "timer": [(kopf.timer, {"interval": INTERVAL})],
    "index": [(kopf.index, {})],
}
