"""What the users of `kubectl` see: the real tool, the real server of webhooks, and real HTTPS."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kopf
from tests.admission.configurations import MUTATING, NAME, VALIDATING, Configurations
from tests.behaviour.objects import API, Obj
from tests.behaviour.running import Calls, Operator
from tests.patience import PATIENCE

pytestmark = pytest.mark.fastforward("exit")


@dataclasses.dataclass
class Outcome:
    """What has become of a command."""

    code: int
    output: str
    errors: str


Kubectl = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def run(kubectl: str, operator: Operator) -> Kubectl:
    """Runs `kubectl`, optionally with an object to be sent."""

    async def run(*args: str, obj: Obj | None = None) -> Outcome:
        env = {**os.environ, "KUBECONFIG": str(operator.cluster.kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            kubectl,
            *args,
            *(() if obj is None else ("-f", "-")),
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            output, errors = await process.communicate(None if obj is None else json.dumps(obj).encode())
        return Outcome(process.returncode or 0, output.decode(), errors.decode())

    return run


@pytest.fixture
def start(operator: Operator, registry: kopf.OperatorRegistry, api: API) -> Callable[..., Awaitable[None]]:
    """Starts the operator, and waits until all of its webhooks are published."""

    def configure(settings: kopf.OperatorSettings) -> None:
        settings.admission.server = kopf.WebhookServer(port=0)
        settings.admission.managed = NAME

    async def start(**kwargs: Any) -> None:
        operator.configure = configure
        await operator.launch(**kwargs)
        for type in (VALIDATING, MUTATING):
            expected = sum(handler.type == type for handler in registry.webhooks)
            async with asyncio.timeout(PATIENCE):
                while len(await Configurations(api).get_webhooks(type)) < expected:
                    await asyncio.sleep(0.05)

    return start


def make(name: str = "kex", **spec: Any) -> Obj:
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": spec}


def denied(name: str, message: str) -> str:
    place = 'error when creating "STDIN"'
    return f'Error from server: {place}: admission webhook "{name}.{NAME}" denied the request: {message}\n'


async def test_validation(start: Any, run: Kubectl) -> None:
    """The handlers of the documentation: each has an endpoint of its own."""

    @kopf.on.validate("kopfexamples", id="say_hello")
    def say_hello(warnings: list[str], **_: Any) -> None:
        warnings.append("Checked by the operator.")

    @kopf.on.validate("kopfexamples", id="check_numbers")
    def check_numbers(spec: kopf.Spec, **_: Any) -> None:
        if not isinstance(spec.get("numbers", []), list):
            raise kopf.AdmissionError("The numbers must be in a list.")

    @kopf.on.validate("kopfexamples", id="numbers_range")
    def numbers_range(spec: kopf.Spec, **_: Any) -> None:
        numbers = spec.get("numbers", [])
        if isinstance(numbers, list) and not all(0 <= float(number) <= 100 for number in numbers):
            raise kopf.AdmissionError("The numbers must be from 0 to 100.", code=499)

    await start()
    outcome = await run("create", obj=make("good", numbers=[1, 2.5]))
    assert outcome == Outcome(0, "kopfexample.kopf.dev/good created\n", "Warning: Checked by the operator.\n")
    outcome = await run("create", obj=make("bad", numbers="1, 2, 3"))
    assert outcome.code == 1
    assert denied("check-numbers", "The numbers must be in a list.") in outcome.errors
    outcome = await run("create", "-v=8", obj=make("bad", numbers=[1, 200]))
    assert outcome.code == 1
    assert f'admission webhook \\"numbers-range.{NAME}\\" denied the request' in outcome.errors
    assert "Response Status: 499" in outcome.errors
    outcome = await run("get", "kopfexamples", "-o", "name")
    assert outcome.output == "kopfexample.kopf.dev/good\n"


async def test_mutation(start: Any, run: Kubectl) -> None:
    @kopf.on.mutate("kopfexamples")
    def default_numbers(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        if "numbers" not in spec:
            patch.spec["numbers"] = [1, 2, 3]

    @kopf.on.mutate("kopfexamples")
    def convert_numbers(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        if isinstance(spec.get("numbers"), list):
            patch.spec["numbers"] = [float(number) for number in spec["numbers"]]
        patch.spec["scratch"] = None
        patch.meta.annotations["example.com/state"] = "converted"

    await start()
    assert (await run("create", obj=make("absent"))).code == 0
    assert (await run("create", obj=make("texts", numbers=["4", "5.5"], scratch={"x": 1}))).code == 0
    outcome = await run("get", "kopfexamples", "-o", "json")
    items = {item["metadata"]["name"]: item for item in json.loads(outcome.output)["items"]}
    assert items["absent"]["spec"] == {"numbers": [1, 2, 3]}
    assert items["texts"]["spec"] == {"numbers": [4, 5.5]}
    assert {item["metadata"]["annotations"]["example.com/state"] for item in items.values()} == {"converted"}


async def test_dry_runs(start: Any, run: Kubectl, calls: Calls) -> None:
    @kopf.on.validate("kopfexamples", side_effects=True, id="check")
    def check(dryrun: bool, userinfo: kopf.UserInfo, **_: Any) -> None:
        calls.append(dryrun)

    await start()
    outcome = await run("create", "--dry-run=server", obj=make())
    assert outcome.output == "kopfexample.kopf.dev/kex created (server dry run)\n"
    assert (await run("create", obj=make())).code == 0
    assert calls == [True, False]


async def test_operations_and_subresources(start: Any, run: Kubectl, calls: Calls, operator: Operator) -> None:
    def declare(id: str, **options: Any) -> None:
        @kopf.on.validate("kopfstatusexamples", id=id, **options)
        def check(operation: str, subresource: str | None, **_: Any) -> None:
            calls.append((id, operation, subresource))

    async def do(*args: str, obj: Obj | None = None) -> set[Any]:
        calls.items.clear()
        outcome = await run(*args, obj=obj)
        assert outcome.code == 0, outcome
        return set(calls)

    declare("main")
    declare("created", operation="CREATE")
    declare("deleted", operations=["DELETE"])
    declare("status", subresource="status")
    declare("everything", subresource="*")
    await start()
    obj = {**make(), "kind": "KopfStatusExample"}
    name = "kopfstatusexample/kex"
    assert await do("create", obj=obj) == {
        ("main", "CREATE", None),
        ("created", "CREATE", None),
        ("everything", "CREATE", None),
    }
    assert await do("patch", name, "--type=merge", "-p", '{"spec":{"x":1}}') == {
        ("main", "UPDATE", None),
        ("everything", "UPDATE", None),
    }
    assert await do("patch", name, "--type=merge", "--subresource=status", "-p", '{"status":{"x":1}}') == {
        ("status", "UPDATE", "status"),
        ("everything", "UPDATE", "status"),
    }
    assert await do("delete", name) == {
        ("main", "DELETE", None),
        ("deleted", "DELETE", None),
        ("everything", "DELETE", None),
    }


async def test_filters_on_the_server_and_in_the_operator(
    start: Any,
    run: Kubectl,
    calls: Calls,
    operator: Operator,
) -> None:
    """What the API server can decide, does not reach the operator at all; the callbacks do."""

    def declare(id: str, **options: Any) -> None:
        @kopf.on.validate("kopfexamples", id=id, **options)
        def check(name: str, **_: Any) -> None:
            calls.append((id, name))

    declare("labels", labels={"l": "v"})
    declare("absent", labels={"l": kopf.ABSENT})
    declare("annotations", annotations={"a": kopf.PRESENT})
    declare("values", field="spec.x", value="1")
    declare("callbacks", labels={"l": lambda value, **_: value == "v"})
    await start()
    matching = make("matching", x="1")
    matching["metadata"] |= {"labels": {"l": "v"}, "annotations": {"a": ""}}
    for obj in (matching, make("other", x="2")):
        assert (await run("create", obj=obj)).code == 0
    assert set(calls) == {
        ("labels", "matching"),
        ("annotations", "matching"),
        ("values", "matching"),
        ("callbacks", "matching"),
        ("absent", "other"),
    }
    called = {(call.webhook.removesuffix(f".{NAME}"), call.name) for call in operator.cluster.admission_calls}
    assert called == {
        ("labels", "matching"),
        ("annotations", "matching"),
        ("values.spec.x", "matching"),
        ("callbacks", "matching"),
        ("absent", "other"),
        ("callbacks", "other"),
    }


async def test_namespaces(start: Any, run: Kubectl, calls: Calls) -> None:
    """The namespaces of the operator restrict what it handles, not what it admits."""

    @kopf.on.validate("kopfexamples", id="check")
    def check(namespace: str, **_: Any) -> None:
        calls.append(namespace)
        raise kopf.AdmissionError("It is bad.")

    assert (await run("create", "namespace", "other")).code == 0
    await start(namespaces=["default"], clusterwide=False)
    assert (await run("create", "-n", "other", obj=make())).code == 1
    assert (await run("create", "-n", "default", obj=make())).code == 1
    assert calls == ["other", "default"]


async def test_persistent_webhooks_block_when_the_operator_is_down(
    start: Any,
    run: Kubectl,
    operator: Operator,
) -> None:
    @kopf.on.validate("kopfexamples", persistent=True, operation="CREATE", id="blocking")
    def blocking(**_: Any) -> None: ...

    @kopf.on.validate("kopfexamples", operation="UPDATE")
    def temporary(**_: Any) -> None: ...

    await start()
    assert (await run("create", obj=make())).code == 0
    await operator.stop()
    outcome = await run("create", obj=make("other"))
    assert outcome.code == 1
    assert f'failed calling webhook "blocking.{NAME}"' in outcome.errors
    assert (await run("label", "kopfexample/kex", "l=v")).code == 0


async def test_slow_functions_in_threads(start: Any, run: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go on, but the user gets an answer."""
    monkeypatch.setattr("kopf._admission.reviewing.MAX_TIMEOUT", 0.5)
    gate = threading.Event()

    @kopf.on.validate("kopfexamples", id="check")
    def check(**_: Any) -> None:
        gate.wait(PATIENCE)

    await start()
    outcome = await run("create", obj=make())
    gate.set()
    assert outcome.errors == denied("check", "The handlers have not finished in 0.5 seconds.")
