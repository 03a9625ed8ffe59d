"""Handlers with everything annotated: type checkers have nothing to say about them, see `test_typing.py`."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import kopf


def is_large(value: int, **_: Any) -> bool:
    return value > 1


def is_small(spec: kopf.Spec, **_: Any) -> bool:
    return bool(spec)


def choose_delay(**_: Any) -> float:
    return 5.0


@kopf.on.startup(id="start", retries=3)
async def configure(settings: kopf.OperatorSettings, activity: kopf.Activity, logger: kopf.Logger, **_: Any) -> None:
    settings.posting.enabled = False
    logger.info("In %s", activity.value)


@kopf.on.login(errors=kopf.ErrorsMode.PERMANENT)
def login(**_: Any) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server="https://localhost")


@kopf.on.create("kopf.dev", "v1", "kopfexamples", labels={"a": "b", "c": kopf.PRESENT}, owns=["deployments"])
@kopf.on.resume("kopfexamples", deleted=True)
async def create(
    body: kopf.Body,
    spec: kopf.Spec,
    meta: kopf.Meta,
    status: kopf.Status,
    labels: kopf.Labels,
    annotations: kopf.Annotations,
    patch: kopf.Patch,
    memo: kopf.Memo,
    reason: kopf.Reason,
    name: str,
    namespace: str | None,
    uid: str | None,
    resource: kopf.Resource,
    retry: int,
    started: datetime.datetime,
    runtime: datetime.timedelta,
    **_: Any,
) -> dict[str, Any]:
    patch.status["seen"] = [spec.get("size"), meta.name, status.get("x"), labels.get("a"), annotations.get("b")]
    patch.meta.labels[name] = uid
    memo.tries = retry
    if runtime > datetime.timedelta(hours=1) or namespace is None:
        raise kopf.TemporaryError("Not yet", delay=60)
    return {"reason": reason.value, "since": started.isoformat(), "plural": resource.plural, "body": body.metadata.uid}


@kopf.on.update("kopfexamples", field="spec.size", old=kopf.ABSENT, new=is_large)
@kopf.on.field("kopfexamples", field=("spec", "size"), timeout=60.5, backoff=10)
def update(old: kopf.BodyEssence | None, new: kopf.BodyEssence | None, diff: kopf.Diff, **_: Any) -> None:
    for operation, field, before, after in diff:
        kopf.info(new or {}, reason=operation.value, message=f"{field[0]}: {before} -> {after}, {old}")


@kopf.on.delete("kopfexamples", optional=True, when=kopf.not_(is_small))
async def delete(**_: Any) -> None:
    @kopf.subhandler(id="sub", param=1)
    async def inner(**_: Any) -> None: ...

    kopf.register(inner, id="other")


@kopf.on.event("pods")
def watch(event: kopf.RawEvent, type: kopf.RawEventType, **_: Any) -> str | None:
    return type if event["type"] == "ADDED" else event["object"].get("kind")


@kopf.on.validate("kopfexamples", operation="CREATE", operations=None, subresource="*")
@kopf.on.mutate("kopfexamples", operations=["CREATE", "UPDATE"], side_effects=True)
def review(
    warnings: list[str],
    dryrun: bool,
    operation: kopf.Operation,
    userinfo: kopf.UserInfo,
    headers: kopf.Headers,
    sslpeer: kopf.SSLPeer,
    **_: Any,
) -> None:
    warnings.append(f"{operation} {userinfo.get('username')} {headers} {sslpeer}")
    if dryrun:
        raise kopf.AdmissionError("No", code=400)


@kopf.daemon("kopfexamples", initial_delay=5, cancellation_timeout=1.5)
async def monitor(stopped: kopf.Stopped, **_: Any) -> None:
    while not stopped:
        await stopped.wait(60)


@kopf.daemon("kopfexamples", initial_delay=choose_delay)
def monitor_in_thread(stopped: kopf.SyncStopped, **_: Any) -> None:
    while not stopped.wait(60):
        assert stopped.reason is None


@kopf.index("pods", field="status.phase")
def phases(namespace: str, name: str, status: kopf.Status, **_: Any) -> dict[tuple[str, str], Any]:
    return {(namespace, name): status["phase"]}


@kopf.timer("kopfexamples", interval=60, idle=10, sharp=True)
def tick(phases: kopf.Index[tuple[str, str], str], **_: Any) -> list[str]:
    return list(phases.get(("ns", "pod"), []))


@dataclasses.dataclass
class WebAppSpec:
    replicas: int
    memory: kopf.Quantity | None = None


@dataclasses.dataclass
class WebAppStatus:
    phase: str | None = None


class WebApp(
    kopf.CustomResource[WebAppSpec, WebAppStatus],
    group="example.com",
    version="v1",
    columns={"Replicas": ".spec.replicas"},
    rules=[kopf.Rule("true")],
):
    """A kind that is described by types."""


def is_web_app_large(spec: WebAppSpec, **_: Any) -> bool:
    return spec.replicas > 9


@kopf.on.create(WebApp, when=is_web_app_large)
@kopf.on.update(WebApp, owns=[WebApp, "deployments"])
async def handle_web_app(
    spec: WebAppSpec,
    status: WebAppStatus,
    old: WebApp | None,
    new: WebApp,
    patch: kopf.Patch,
    **_: Any,
) -> str:
    if old is not None and old.spec.replicas < new.spec.replicas:
        patch.status["phase"] = (status.phase or "").upper()
    return str(spec.memory.value) if spec.memory is not None else ""


@kopf.index(WebApp)
def web_apps(body: kopf.Body, **_: Any) -> dict[str | None, int]:
    app = WebApp(body)
    return {app.metadata.name: app.spec.replicas}
