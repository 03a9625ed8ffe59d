"""Handlers as functions: what they get, what is told of what they have done, and which of them are called at all."""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
import pathlib
import threading
from typing import Any

import pytest

import kopf
from kopf._handlers import signatures
from kopf._handlers.handlers import Handler
from kopf._testing.handler_choice import REASONS
from kopf.testing import LocalCluster, LogLine, ReportedEvent, run_handler, run_handler_async
from tests.cli.conftest import EXAMPLE

BODY = {"spec": {"size": 1}, "metadata": {"labels": {"app": "x"}}}


def do_nothing(**_: Any) -> None:
    pass


def collect(**kwargs: Any) -> dict[str, Any]:
    collected.append(kwargs)
    return {}


async def collect_async(**kwargs: Any) -> None:
    await asyncio.sleep(0)
    collected.append(kwargs)


collected: list[dict[str, Any]] = []


def get_kwargs(*args: Any, fn: Any = collect, **options: Any) -> dict[str, Any]:
    """Run a function that gets everything, and give what it has got."""
    run = run_handler(fn, *args, **options)
    assert run.outcome in ("succeeded", "allowed"), run
    return collected.pop()


# --- what handlers get ---


def test_the_object_is_made_complete() -> None:
    kwargs = get_kwargs(BODY)
    assert (kwargs["name"], kwargs["namespace"], bool(kwargs["uid"])) == ("example", "default", True)
    assert (kwargs["spec"], kwargs["labels"], kwargs["status"]) == ({"size": 1}, {"app": "x"}, {})
    assert kwargs["body"]["kind"] == kwargs["resource"].kind
    assert kwargs["body"]["apiVersion"] == kwargs["resource"].api_version
    views = {
        "body": kopf.Body,
        "spec": kopf.Spec,
        "meta": kopf.Meta,
        "status": kopf.Status,
        "patch": kopf.Patch,
        "memo": kopf.Memo,
        "diff": kopf.Diff,
        "reason": kopf.Reason,
        "resource": kopf.Resource,
    }
    assert {name: type(kwargs[name]) for name in views} == views


def test_what_is_given_is_kept() -> None:
    metadata = {"name": "n", "namespace": "ns", "uid": "u"}
    kwargs = get_kwargs({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
    assert (kwargs["name"], kwargs["namespace"], kwargs["uid"]) == ("n", "ns", "u")
    assert repr(kwargs["resource"]) == "deployments.v1.apps"


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({"apiVersion": "v1", "kind": "Node"}, {}),
        ({}, {"resource": kopf.Resource("", "v1", "nodes", "Node", namespaced=False)}),
        ({"metadata": {"namespace": None}}, {}),
    ],
)
def test_objects_of_the_cluster_have_no_namespaces(body: Any, options: Any) -> None:
    assert get_kwargs(body, **options)["namespace"] is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("kopfexamples",), "kopfexamples.v1.example.com"),
        (("kopf.dev/v1", "kopfexamples"), "kopfexamples.v1.kopf.dev"),
        (("apps", "v1", "Deployment"), "deployments.v1.apps"),
        (("v1", "pod"), "pods.v1"),
    ],
)
def test_resources_are_those_of_the_declarations(names: tuple[str, ...], expected: str) -> None:
    kopf.on.create(*names)(collect)
    assert repr(get_kwargs()["resource"]) == expected


@pytest.mark.parametrize("given", ["spec: {size: 5}", pathlib.Path("obj.yaml")])
def test_objects_are_given_as_yaml(tmp_path: pathlib.Path, given: Any) -> None:
    (tmp_path / "obj.yaml").write_text("---\nspec: {size: 5}\n")
    assert get_kwargs(tmp_path / given if isinstance(given, pathlib.Path) else given)["spec"] == {"size": 5}


def run_anything(**options: Any) -> Any:
    return run_handler(do_nothing, **options)


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (lambda: run_handler(do_nothing, ""), ValueError, "There must be one object in the YAML"),
        (
            lambda: run_handler(do_nothing, "{}\n---\na: b\n---\nc: d"),
            ValueError,
            "There must be one object in the YAML",
        ),
        (lambda: run_handler(do_nothing, "text"), ValueError, "There must be one object in the YAML"),
        (lambda: run_anything(indices={"idx": {"key": "text"}}), TypeError, "but 'key' has"),
        (lambda: run_anything(indices={"idx": {"key": 1}}), TypeError, "but 'key' has"),
        (lambda: run_anything(reson="create"), TypeError, r"no such option: 'reson'. Did you mean 'reason'\?"),
        (
            lambda: run_anything(reason="created"),
            ValueError,
            "There is no reason 'created'; the reasons are: create, update",
        ),
        (lambda: run_anything(reason="update"), TypeError, "An update needs the last handled state"),
        (lambda: run_anything(reason="create", old={}), TypeError, "A new object was never handled before"),
        (
            lambda: run_anything(reason="validate", operation="UPDATE"),
            TypeError,
            "An update needs the previous state",
        ),
        (
            lambda: run_handler(lambda sepc, **_: None),
            kopf.DeclarationError,
            "requires 'sepc', but there is no such argument",
        ),
        (lambda: run_handler(lambda spec: None), kopf.DeclarationError, "does not accept all arguments"),
    ],
)
def test_what_cannot_be_run(run: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run()


def test_the_given_object_is_not_touched() -> None:
    def fn(spec: Any, patch: Any, **_: Any) -> None:
        spec["list"].append(1)
        patch.spec["x"] = 1
        patch.fns.append(lambda body: body["spec"].update(y=2))

    body: Any = {"spec": {"list": []}}
    assert run_handler(fn, body).applied["spec"] == {"list": [], "x": 1, "y": 2}
    assert body == {"spec": {"list": []}}


def test_attempts_are_described() -> None:
    kwargs = get_kwargs(retry=3, runtime=60)
    assert (kwargs["retry"], kwargs["runtime"]) == (3, datetime.timedelta(minutes=1))
    assert datetime.datetime.now(datetime.UTC) - kwargs["started"] >= kwargs["runtime"]
    started = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    kwargs = get_kwargs(started=started)
    assert kwargs["started"] == started
    assert kwargs["runtime"] > datetime.timedelta(days=1)


def test_the_world_is_given() -> None:
    memo, settings = object(), kopf.OperatorSettings()
    kwargs = get_kwargs(memo=memo, param="p", indices={"pods": {"a": [1, 2]}, "none": {}, "service": memo})
    assert (kwargs["memo"], kwargs["param"], kwargs["service"]) == (memo, "p", memo)
    assert (type(kwargs["pods"]), type(kwargs["none"])) == (kopf.Index, kopf.Index)
    assert (list(kwargs["pods"]), list(kwargs["pods"]["a"]), len(kwargs["none"])) == (["a"], [1, 2], 0)
    assert get_kwargs(reason="startup", settings=settings)["settings"] is settings


@pytest.mark.parametrize("reason", REASONS)
def test_kwargs_are_those_of_the_kind(reason: str) -> None:
    names = [] if reason in ("startup", "cleanup", "login", "probe") else ["pods"]
    getattr(kopf.on, reason)(*names)(collect)
    registry = kopf.get_default_registry()
    handlers: list[Handler] = [*registry.activities, *registry.resources, *registry.webhooks]
    old: dict[str, Any] | None = {} if reason == "update" else None
    assert get_kwargs(BODY, old=old, indices={"idx": {}}).keys() == signatures.get_kwargs(handlers[0], {"idx"})


async def test_it_is_as_in_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = kopf.OperatorRegistry()
    seen: list[dict[str, Any]] = []

    @kopf.on.login(registry=registry)
    def login_fn(**kwargs: Any) -> Any:
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.create("kopfexamples", id="fn", registry=registry)
    @kopf.on.update("kopfexamples", id="fn", registry=registry)
    def fn(patch: kopf.Patch, reason: str, **kwargs: Any) -> Any:
        seen.append(kwargs)
        patch.status["reason"] = str(reason)
        patch.fns.append(lambda body: body["status"].setdefault("list", []).append(reason))
        return {"size": kwargs["spec"]["size"]}

    def is_handled(size: str, obj: dict[str, Any]) -> bool:
        return bool(obj["status"]["fn"]["size"] == size)

    obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "x"}}
    actual: list[dict[str, Any]] = []
    async with LocalCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        cluster.apply(EXAMPLE / "crd.yaml")
        stop = asyncio.Event()
        operator = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True, stop_flag=stop))
        for size in ("small", "large"):
            cluster.apply({**obj, "spec": {"size": size, "items": [{"x": 1}]}})
            actual.append(await cluster.aio.wait_for("kopfexamples", "x", functools.partial(is_handled, size)))
        stop.set()
        await operator

    operated, seen = seen, []
    runs = [run_handler(fn, kwargs["body"], resource=kwargs["resource"], registry=registry) for kwargs in operated]
    assert [run.reason for run in runs] == ["create", "update"]
    for theirs, ours in zip(operated, seen, strict=True):
        assert theirs.keys() == ours.keys()
        same = theirs.keys() - {"logger", "memo", "started", "runtime"}
        assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}
        assert {name: type(ours[name]) for name in same} == {name: type(theirs[name]) for name in same}
    assert [run.applied["status"] for run in runs] == [obj["status"] for obj in actual]


# --- changes ---


@pytest.mark.parametrize(
    ("body", "options", "reason", "diff"),
    [
        (BODY, {}, "create", [("add", (), None, {**BODY})]),
        (BODY, {"old": None}, "create", [("add", (), None, {**BODY})]),
        (BODY, {"old": {**BODY, "spec": {"size": 0}}}, "update", [("change", ("spec", "size"), 0, 1)]),
        (BODY, {"reason": "delete"}, "delete", []),
        (BODY, {"reason": "delete", "old": {**BODY, "spec": {}}}, "delete", [("add", ("spec", "size"), None, 1)]),
        (BODY, {"reason": kopf.Reason.RESUME}, "resume", []),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, {}, "delete", []),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, {"old": {}}, "delete", []),
    ],
)
def test_changes_are_detected(body: Any, options: Any, reason: str, diff: list[Any]) -> None:
    kwargs = get_kwargs(body, **options)
    assert kwargs["reason"] == reason
    assert bool(kwargs["meta"].deletion_timestamp) == (reason == "delete")
    assert list(kwargs["diff"]) == diff
    assert "annotations" not in kwargs["meta"]


def test_last_handled_states_are_taken_from_the_annotations() -> None:
    last = '{"spec":{"size":0}}\n'
    body = {"spec": {"size": 1}, "metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": last}}}
    kwargs = get_kwargs(body)
    assert (kwargs["reason"], kwargs["old"], kwargs["new"]) == ("update", {"spec": {"size": 0}}, {"spec": {"size": 1}})
    assert get_kwargs(body, reason="create")["old"] is None
    assert get_kwargs({**body, "spec": {"size": 0}})["reason"] == "resume"


def test_handlers_of_fields_see_the_fields() -> None:
    kopf.on.field("kopfexamples", field="spec.size")(collect)
    kwargs = get_kwargs(BODY, old={"spec": {"size": 0}})
    assert (kwargs["reason"], kwargs["old"], kwargs["new"]) == ("update", 0, 1)
    assert get_kwargs(BODY)["reason"] == "create"
    assert run_handler(collect, BODY, old=BODY, reason="update").outcome == "skipped"


def test_fields_are_given_to_functions_that_are_not_declared() -> None:
    kwargs = get_kwargs(BODY, old={"spec": {"size": 0}}, field="spec.size")
    assert (kwargs["old"], kwargs["new"]) == (0, 1)


def test_no_change_is_no_reason() -> None:
    run = run_handler(collect, {**BODY, "status": {"x": 1}}, old=BODY)
    assert (run.reason, run.outcome, collected) == ("update", "skipped", [])


@pytest.mark.parametrize(
    ("decorator", "body", "options"),
    [
        (kopf.on.create("pods", labels={"app": "y"}), BODY, {}),
        (kopf.on.create("pods", when=lambda **_: False), BODY, {}),
        (kopf.on.create("pods", field="spec.other"), BODY, {}),
        (kopf.on.update("pods", field="spec.size", new=5), BODY, {"old": {}}),
        (kopf.on.update("pods"), {**BODY, "status": {"x": 1}}, {"old": BODY}),
        (kopf.on.event("pods", labels={"app": "y"}), BODY, {}),
        (kopf.timer("pods", annotations={"a": kopf.PRESENT}), BODY, {}),
        (kopf.index("pods", when=lambda **_: False), BODY, {}),
        (kopf.on.validate("pods", labels={"app": "y"}), BODY, {}),
        (kopf.on.mutate("pods", operations=["UPDATE", "DELETE"]), BODY, {"operation": "CREATE"}),
        (kopf.on.validate("pods", subresource="status"), BODY, {}),
    ],
)
def test_filters_are_in_effect(decorator: Any, body: Any, options: Any) -> None:
    decorator(collect)
    run = run_handler(collect, body, registry=kopf.get_default_registry(), **options)
    assert (run.outcome, run.result, run.patch, collected) == ("skipped", None, {}, [])


def test_failures_of_filters_are_raised() -> None:
    @kopf.on.create("pods", when=lambda spec, **_: spec["x"])
    def fn(**_: Any) -> None:
        pass

    with pytest.raises(Exception, match=r"The callback .* in when= of Handler .* has failed: KeyError: 'x'"):
        run_handler(fn)


# --- declarations ---


def test_the_declaration_is_in_effect() -> None:
    @kopf.on.create("pods", id="x", param=7, retries=2, backoff=5)
    def fn(param: int, **_: Any) -> None:
        raise ValueError(param)

    run = run_handler(fn)
    assert (run.id, run.reason, run.outcome, run.delay) == ("x", "create", "retried", 5)
    assert repr(run.exception) == "ValueError(7)"
    assert run_handler(fn, retry=1).outcome == "failed"
    assert run_handler(fn, errors=kopf.ErrorsMode.PERMANENT).outcome == "failed"
    assert run_handler(fn, backoff=9).delay == 9
    late = run_handler(fn, timeout=10, runtime=20)
    assert isinstance(late.exception, kopf.HandlerTimeoutError)


def test_several_changes_of_one_function() -> None:
    for decorator in (kopf.on.create, kopf.on.update, kopf.on.resume):
        decorator("pods")(do_nothing)
    assert run_handler(do_nothing).reason == "create"
    assert run_handler(do_nothing, BODY, old={}).reason == "update"
    assert run_handler(do_nothing, reason="resume").reason == "resume"
    with pytest.raises(LookupError, match=r"is not declared with reason='delete', but for create \(id='do_nothing'\)"):
        run_handler(do_nothing, reason="delete")
    with pytest.raises(LookupError, match=r"the states of the object mean 'delete'"):
        run_handler(do_nothing, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})


def test_ambiguities_are_refused() -> None:
    kopf.on.create("pods", id="a")(do_nothing)
    kopf.on.create("pods", id="b")(do_nothing)
    kopf.timer("pods", interval=1, id="c")(do_nothing)
    with pytest.raises(LookupError, match=r"is declared for create \(id='a'\), create \(id='b'\), timer \(id='c'\)\."):
        run_handler(do_nothing)
    with pytest.raises(LookupError, match=r"Choose one by reason= or id="):
        run_handler(do_nothing, reason="create")
    assert run_handler(do_nothing, id="b").id == "b"
    assert run_handler(do_nothing, reason="timer").id == "c"


def test_several_filters_of_one_function() -> None:
    kopf.on.create("pods", labels={"app": "y"})(do_nothing)
    kopf.on.create("pods", labels={"app": "x"})(do_nothing)
    assert run_handler(do_nothing, BODY).outcome == "succeeded"
    assert run_handler(do_nothing, {}).outcome == "skipped"


def test_registries_are_told_apart() -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.create("pods", id="x", registry=registry)(do_nothing)
    assert run_handler(do_nothing, registry=registry).id == "x"
    assert run_handler(do_nothing).id == "do_nothing"


class Operator:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self, name: str, **_: Any) -> None:
        self.seen.append(name)

    def __call__(self, name: str, **_: Any) -> None:
        self.seen.append(name)


def test_all_kinds_of_callables() -> None:
    operator = Operator()
    kopf.on.create("pods", id="method")(operator.handle)
    assert run_handler(operator.handle).id == "method"
    assert run_handler(operator).id == "Operator"
    assert run_handler(functools.partial(collect, extra=1)).id == "collect"
    assert collected.pop()["extra"] == 1
    assert run_handler(lambda spec, **_: spec["size"] > 0, BODY).result is True
    assert operator.seen == ["example", "example"]


# --- other kinds ---


def test_raw_events() -> None:
    kwargs = get_kwargs(BODY, reason="event", type="DELETED")
    assert (kwargs["type"], kwargs["event"]["object"]["spec"]) == ("DELETED", {"size": 1})
    assert get_kwargs(BODY, reason="event")["type"] == "ADDED"
    assert get_kwargs(BODY, reason="event", type=None)["type"] is None


@pytest.mark.parametrize("reason", ["event", "index"])
def test_ignored_errors(reason: str) -> None:
    error = ValueError("boom")

    def fn(**_: Any) -> None:
        raise error

    run = run_handler(fn, reason=reason)
    assert (run.outcome, run.exception, run.delay) == ("ignored", error, None)


def test_indices() -> None:
    run = run_handler(lambda name, **_: {name: 1}, reason="index")
    assert (run.outcome, run.result, run.patch) == ("succeeded", {"example": 1}, {})


@pytest.mark.parametrize(("fn", "is_async"), [(collect, False), (collect_async, True)])
@pytest.mark.parametrize("reason", ["timer", "daemon"])
def test_background(reason: str, fn: Any, is_async: bool) -> None:
    stopped = get_kwargs(fn=fn, reason=reason)["stopped"]
    assert type(stopped) is (kopf.AsyncDaemonStopperChecker if is_async else kopf.SyncDaemonStopperChecker)
    assert not stopped
    assert get_kwargs(fn=fn, reason="daemon", stop_after=0)["stopped"]


def test_daemons_are_stopped() -> None:
    def fn(stopped: Any, **_: Any) -> Any:
        assert not stopped
        stopped.wait(60)
        return str(stopped.reason)

    async def afn(stopped: Any, **_: Any) -> Any:
        assert not stopped
        await stopped.wait(60)
        return str(stopped.reason)

    for daemon in (fn, afn):
        run = run_handler(daemon, reason="daemon", stop_after=1)  # on a busy machine, it begins late
        assert (run.outcome, run.result) == ("succeeded", str(kopf.DaemonStoppingReason.RESOURCE_DELETED))


def test_daemons_are_cancelled() -> None:
    @kopf.daemon("pods", cancellation_timeout=1)
    async def fn(patch: Any, **_: Any) -> None:
        patch.status["x"] = 1
        await asyncio.sleep(60)

    run = run_handler(fn, stop_after=0.01)
    assert (run.outcome, run.patch, run.exception) == ("cancelled", {"status": {"x": 1}}, None)


def test_daemons_that_do_not_stop_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kopf._testing.object_calls.PATIENCE", 0.01)

    async def fn(**_: Any) -> None:
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError, match=r"was stopped after 0.01 s, but it still runs"):
        run_handler(fn, reason="daemon", stop_after=0.01)


@pytest.mark.parametrize("reason", ["startup", "cleanup", "login", "probe"])
def test_activities(reason: str) -> None:
    getattr(kopf.on, reason)(id="x")(collect)
    run = run_handler(collect)
    assert (run.id, run.reason, run.outcome, run.result, run.patch) == ("x", reason, "succeeded", {}, {})
    kwargs = collected.pop()
    assert isinstance(kwargs["settings"], kopf.OperatorSettings)
    assert {"activity", "logger", "memo", "retry"} <= kwargs.keys()
    assert "body" not in kwargs


# --- admission ---


def test_reviews_are_described() -> None:
    options = {"userinfo": {"username": "jane"}, "headers": {"h": "v"}, "sslpeer": {"s": 1}, "dryrun": True}
    kwargs = get_kwargs(BODY, reason="mutate", **options)
    assert {name: kwargs[name] for name in options} == options
    assert (kwargs["operation"], kwargs["old"], kwargs["new"]["spec"]) == ("CREATE", None, {"size": 1})
    kwargs = get_kwargs(BODY, reason="validate", old={"spec": {"size": 0}})
    assert kwargs["userinfo"]["username"] == "somebody"
    assert (kwargs["operation"], kwargs["old"]["spec"], kwargs["old"]["metadata"]["name"]) == (
        "UPDATE",
        {"size": 0},
        "example",
    )
    assert ("change", ("spec", "size"), 0, 1) in kwargs["diff"]
    kwargs = get_kwargs(BODY, reason="validate", operation="DELETE", subresource=None)
    assert (kwargs["old"]["spec"], kwargs["new"], kwargs["body"]["spec"]) == ({"size": 1}, None, {"size": 1})


def test_verdicts() -> None:
    @kopf.on.mutate("pods", operation="CREATE")
    async def fn(spec: Any, patch: Any, warnings: Any, **_: Any) -> None:
        warnings.append("be careful")
        if spec["size"] > 3:
            raise kopf.AdmissionError("too large", code=422)
        patch.spec["size"] = 3

    run = run_handler(fn, BODY)
    assert (run.outcome, run.warnings, run.denial) == ("allowed", ("be careful",), None)
    assert run.applied["spec"] == {"size": 3}
    run = run_handler(fn, {"spec": {"size": 4}})
    assert (run.outcome, run.denial) == ("denied", {"message": "too large", "code": 422})
    assert isinstance(run.exception, kopf.AdmissionError)


@pytest.mark.parametrize("error", [kopf.TemporaryError("x", delay=5), ValueError("secret")])
def test_any_error_denies(error: Exception) -> None:
    def fn(**_: Any) -> None:
        raise error

    run = run_handler(fn, reason="validate")
    assert (run.outcome, run.exception, run.delay) == ("denied", error, None)
    assert run.denial is not None
    assert "secret" not in run.denial["message"]


# --- what they have done ---


@pytest.mark.parametrize(
    ("error", "outcome", "delay"),
    [
        (kopf.TemporaryError("x", delay=3), "retried", 3),
        (kopf.TemporaryError("x", delay=None), "retried", 0),
        (kopf.PermanentError("x"), "failed", None),
        (ValueError("x"), "retried", 60),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_errors(error: Exception, outcome: str, delay: Any, is_async: bool) -> None:
    def fn(**_: Any) -> None:
        raise error

    async def afn(**_: Any) -> None:
        raise error

    run = run_handler(afn if is_async else fn)
    assert (run.outcome, run.exception, run.delay, run.patch) == (outcome, error, delay, {})


def test_failures_of_the_test_go_through() -> None:
    def fn(**_: Any) -> None:
        pytest.fail("not this way")

    with pytest.raises(pytest.fail.Exception, match="not this way"):
        run_handler(fn)


def test_patches_are_applied() -> None:
    def fn(patch: kopf.Patch, **_: Any) -> Any:
        patch.meta.labels["app"] = None
        patch.spec["a"] = {"b": 1}
        patch.fns.append(lambda body: body["spec"]["a"].update(c=2))
        return {"x": (1, 2)}

    run = run_handler(fn, BODY, id="fn")
    assert run.patch == {
        "metadata": {"labels": {"app": None}},
        "spec": {"a": {"b": 1}},
        "status": {"fn": {"x": [1, 2]}},
    }
    assert len(run.patch.fns) == 1
    assert run.applied["spec"] == {"size": 1, "a": {"b": 1, "c": 2}}
    assert (run.applied["metadata"]["labels"], run.applied["status"]) == ({}, {"fn": {"x": [1, 2]}})
    assert run.body["metadata"]["labels"] == {"app": "x"}


def test_events_are_taken() -> None:
    async def fn(body: kopf.Body, **_: Any) -> None:
        kopf.event(body, type="T", reason="R", message="M")
        kopf.info(body, reason="I")
        kopf.warn(body, reason="W", message="careful")
        await asyncio.to_thread(kopf.exception, body, exc=ValueError("boom"))

    run = run_handler(fn)
    assert run.events == (
        ("T", "R", "M"),
        ("Normal", "I", ""),
        ("Warning", "W", "careful"),
        ("Error", "ValueError", "boom"),
    )
    assert isinstance(run.events[0], ReportedEvent)
    with pytest.raises(LookupError):
        kopf.info({}, reason="x")


def test_logs_are_taken_of_all_levels(caplog: pytest.LogCaptureFixture) -> None:
    def fn(logger: kopf.Logger, **_: Any) -> None:
        logger.debug("one %s", 1)
        logger.warning("two", extra={"x": 1})
        try:
            raise ValueError("boom")
        except ValueError:
            logger.exception("%(x)s", {"x": "three"})

    caplog.set_level(logging.WARNING)
    run = run_handler(fn, id="fn")
    assert run.logs == (
        ("DEBUG", "Handler 'fn' is invoked."),
        ("DEBUG", "one 1"),
        ("WARNING", "two"),
        ("ERROR", "three"),
        ("INFO", "Handler 'fn' succeeded."),
    )
    assert isinstance(run.logs[0], LogLine)
    assert caplog.messages == ["two", "three"]
    assert {record.funcName for record in caplog.records} == {"fn"}
    assert caplog.records[0].__dict__["k8s_ref"]["name"] == "example"
    assert caplog.records[0].__dict__["x"] == 1
    assert caplog.records[1].exc_info


@pytest.mark.parametrize(
    ("reason", "is_local"),
    [
        ("create", False),
        ("timer", False),
        ("event", True),
        ("index", True),
    ],
)
def test_some_logs_are_never_posted(caplog: pytest.LogCaptureFixture, reason: str, is_local: bool) -> None:
    run_handler(lambda logger, **_: logger.warning("x"), reason=reason)
    own = [record for record in caplog.records if record.getMessage() == "x"]  # with those of the framework, at times
    assert [record.__dict__["k8s_skip"] for record in own] == [is_local]


def test_hierarchies_know_the_owner() -> None:
    def fn(**_: Any) -> None:
        child: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod"}
        kopf.adopt(child)
        collected.append(child)

    run = run_handler(fn, BODY)
    [owner] = collected.pop()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (
        run.body["kind"],
        run.body["metadata"]["name"],
        run.body["metadata"]["uid"],
    )


# --- sub-handlers ---


def test_subhandlers_are_executed() -> None:
    def fn(**_: Any) -> Any:
        @kopf.subhandler(id="ok", param="p")
        def sub1(param: str, logger: Any, body: kopf.Body, **_: Any) -> Any:
            logger.info("Hello!")
            kopf.info(body, reason="Sub")
            return param

        @kopf.subhandler(id="later")
        async def sub2(**_: Any) -> None:
            await asyncio.sleep(0)
            kopf.register(do_nothing, id="nested")
            raise kopf.TemporaryError("x", delay=5)

        @kopf.subhandler(id="never")
        async def sub3(retry: int, **_: Any) -> None:
            await asyncio.sleep(0)
            assert retry == 0
            raise kopf.PermanentError("x")

    run = run_handler(fn, id="fn", retry=2)
    assert (run.outcome, run.delay) == ("retried", 5)
    assert run.patch == {"status": {"fn/ok": "p"}}
    assert [(child.id, child.outcome, child.result) for child in run.children] == [
        ("fn/ok", "succeeded", "p"),
        ("fn/later", "retried", None),
        ("fn/never", "failed", None),
    ]
    first = run.children[0]
    assert ("INFO", "Hello!") in first.logs
    assert run.children[1].logs[0] == ("DEBUG", "Handler 'fn/later' is invoked.")
    assert first.events == run.events == (("Normal", "Sub", ""),)
    assert not any(child.events for child in run.children[1:])


async def test_subhandlers_are_executed_explicitly() -> None:
    async def fn(**_: Any) -> Any:
        await kopf.execute(fns={"a": do_nothing, "b": collect_async})
        kopf.register(do_nothing, id="c")
        await kopf.execute()
        kopf.register(do_nothing, id="d")
        return 1

    run = await run_handler_async(fn, id="fn")
    assert (run.outcome, run.result) == ("succeeded", 1)
    assert [child.id for child in run.children] == ["fn/a", "fn/b", "fn/c", "fn/d"]
    assert collected.pop()["name"] == "example"


def test_subhandlers_of_subhandlers() -> None:
    def fn(**_: Any) -> None:
        @kopf.subhandler(id="a")
        async def sub(**_: Any) -> None:
            kopf.register(do_nothing, id="b")

    [child] = run_handler(fn, id="fn").children
    assert [nested.id for nested in child.children] == ["fn/a/b"]


# --- threads and event loops ---


@pytest.mark.parametrize("is_async", [False, True])
def test_reconcilers_need_a_cluster(is_async: bool) -> None:
    registry = kopf.OperatorRegistry()

    async def async_fn(**_: Any) -> Any:
        return {"apiVersion": "v1", "kind": "ConfigMap"}

    def sync_fn(**_: Any) -> Any:
        return {"apiVersion": "v1", "kind": "ConfigMap"}

    fn = kopf.reconcile("kopfexamples", owns="configmaps", registry=registry)(async_fn if is_async else sync_fn)
    run = run_handler(fn, registry=registry)
    assert (run.outcome, str(run.exception)[:35]) == ("retried", "This call needs the Kubernetes API:")


def test_synchronous_functions_are_called_right_here() -> None:
    def fn(**_: Any) -> Any:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return threading.get_ident()

    for reason in ("create", "event", "timer", "daemon", "index", "probe", "validate"):
        assert run_handler(fn, reason=reason).result == threading.get_ident()


async def test_synchronous_functions_need_no_loop_even_if_there_is_one() -> None:
    assert run_handler(do_nothing).outcome == "succeeded"


def test_coroutines_have_a_loop_of_their_own() -> None:
    assert run_handler(lambda **_: asyncio.sleep(0, "x")).result == "x"
    assert run_handler(collect_async).outcome == "succeeded"
    assert collected.pop()


def make_parent_of_coroutine(**_: Any) -> None:
    kopf.register(collect_async)


@pytest.mark.parametrize(
    "fn",
    [
        collect_async,
        make_parent_of_coroutine,
        lambda **_: asyncio.sleep(0),
    ],
)
async def test_coroutines_are_not_run_in_a_running_loop(fn: Any) -> None:
    with pytest.raises(RuntimeError, match=r"needs an event loop.*use `await kopf.testing.run_handler_async"):
        run_handler(fn)
    assert (await run_handler_async(fn)).outcome == "succeeded"
    collected.clear()


async def test_coroutines_are_run_in_the_loop_of_the_test() -> None:
    event = asyncio.Event()

    async def fn(**_: Any) -> Any:
        await event.wait()
        return asyncio.get_running_loop()

    task = asyncio.create_task(run_handler_async(fn))
    await asyncio.sleep(0)
    event.set()
    assert (await task).result is asyncio.get_running_loop()
