"""The samples of the documentation about what handlers end with: results, errors, limits; and about idempotence."""
from __future__ import annotations

import asyncio
import datetime

import pytest

from tests.behaviour.conftest import Load
from tests.behaviour.objects import Objects
from tests.behaviour.running import Logs, Operator, now

pytestmark = [pytest.mark.fastforward, pytest.mark.usefixtures("as_users_run_it", "in_memory")]


async def test_results(operator: Operator, kex: Objects, load: Load) -> None:
    load("""
        import random
        import kopf

        @kopf.on.create('kopfexamples')
        def create_kex_1(**_):
            return 100

        @kopf.on.create('kopfexamples')
        def create_kex_2(uid, **_):
            return {'r1': random.randint(0, 100), 'r2': random.randint(100, 999)}
    """)
    obj = await operator.start_and_handle(kex)
    assert obj["status"]["create_kex_1"] == 100
    assert 0 <= obj["status"]["create_kex_2"]["r1"] <= 100 <= obj["status"]["create_kex_2"]["r2"] <= 999


async def test_results_as_the_communication(operator: Operator, kex: Objects, load: Load, logs: Logs) -> None:
    load("""
        import kopf
        import kubernetes

        @kopf.on.create('kopfexamples')
        def create_job(namespace, status, **_):
            if not status.get('create_pvc', {}):
                raise kopf.TemporaryError("PVC is not created yet.", delay=10)

            pvc_name = status['create_pvc']['name']

            volume = {'name': 'main', 'persistentVolumeClaim': {'claimName': pvc_name}}
            with kubernetes.client.ApiClient() as client:
                api = kubernetes.client.CoreV1Api(client)
                obj = api.create_namespaced_pod(namespace, {
                    'metadata': {'generateName': 'job-'},
                    'spec': {'volumes': [volume], 'containers': [{'name': 'main', 'image': 'busybox'}]}})
                client.rest_client.pool_manager.clear()
            return {'name': obj.metadata.name}

        @kopf.on.create('kopfexamples')
        def create_pvc(namespace, **_):
            with kubernetes.client.ApiClient() as client:
                api = kubernetes.client.CoreV1Api(client)
                obj = api.create_namespaced_persistent_volume_claim(namespace, {
                    'metadata': {'generateName': 'pvc-'},
                    'spec': {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}}})
                client.rest_client.pool_manager.clear()
            return {'name': obj.metadata.name}
    """)
    obj = await operator.start_and_handle(kex)
    assert logs.find("Handler 'create_job' failed temporarily: PVC is not created yet.")
    pods = (await kex.api.request("GET", "/api/v1/namespaces/default/pods"))["items"]
    claims = (await kex.api.request("GET", "/api/v1/namespaces/default/persistentvolumeclaims"))["items"]
    assert [pod["metadata"]["name"] for pod in pods] == [obj["status"]["create_job"]["name"]]
    assert [claim["metadata"]["name"] for claim in claims] == [obj["status"]["create_pvc"]["name"]]
    assert pods[0]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claims[0]["metadata"]["name"]


async def test_temporary_errors(operator: Operator, kex: Objects, load: Load, logs: Logs) -> None:
    module = load("""
        import kopf

        answers = iter([False, False, True])

        def is_data_ready():
            return next(answers)

        @kopf.on.create('kopfexamples')
        def create_fn(spec, **_):
            if not is_data_ready():
                raise kopf.TemporaryError("The data is not yet ready.", delay=60)
    """)
    assert module.is_data_ready
    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert now() - started == pytest.approx(120, abs=5)
    assert len(logs.find("Handler 'create_fn' failed temporarily: The data is not yet ready.")) == 2


async def test_permanent_errors(operator: Operator, kex: Objects, load: Load, logs: Logs) -> None:
    load("""
        import datetime
        import kopf

        @kopf.on.create('kopfexamples')
        def create_fn(spec, **_):
            valid_until = datetime.datetime.fromisoformat(spec['validUntil'])
            if valid_until <= datetime.datetime.now(datetime.timezone.utc):
                raise kopf.PermanentError("The object is not valid anymore.")
    """)
    await operator.start()
    today = datetime.datetime.now(datetime.UTC)
    for name, days in (("good", +1), ("bad", -1)):
        await kex.create_and_wait(name, spec={"validUntil": (today + datetime.timedelta(days=days)).isoformat()})
    assert "Creation is processed: 1 succeeded; 0 failed." in logs.get_messages("good")
    assert "Creation is processed: 0 succeeded; 1 failed." in logs.get_messages("bad")
    assert "Handler 'create_fn' failed permanently: The object is not valid anymore." in logs.get_messages("bad")


@pytest.mark.parametrize(("options", "error", "attempts", "duration"), [
    ("errors=kopf.ErrorsMode.PERMANENT", "Exception()", 1, 0),
    ("timeout=60*60", "kopf.TemporaryError(delay=60)", 60, 59 * 60),
    ("retries=3", "Exception()", 3, 2 * 60),
], ids=["errors", "timeout", "retries"])
async def test_reactions_to_errors(
        operator: Operator, kex: Objects, load: Load, logs: Logs,
        options: str, error: str, attempts: int, duration: float,
) -> None:
    load(f"""
        import kopf

        @kopf.on.create('kopfexamples', {options})
        def create_fn(spec, **_):
            raise {error}
    """)
    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert now() - started == pytest.approx(duration, abs=10)
    assert len(logs.find("Handler 'create_fn' is invoked.")) == attempts
    assert logs.find("Creation is processed: 0 succeeded; 1 failed.")


async def test_backoff(operator: Operator, kex: Objects, load: Load, logs: Logs) -> None:
    load("""
        import kopf

        @kopf.on.create('kopfexamples', backoff=30)
        def create_fn(spec, **_):
            raise Exception()
    """)
    await operator.start()
    started = now()
    await kex.create()
    await logs.wait("Handler 'create_fn' is invoked.", times=11)
    assert now() - started == pytest.approx(300, abs=10)


async def test_idempotence(
        operator: Operator, kex: Objects, load: Load, capsys: pytest.CaptureFixture[str], logs: Logs,
) -> None:
    load("""
        import functools
        import kopf

        @kopf.on.create('kopfexamples')
        async def create(spec, namespace, **kwargs):
            print("Entering create()!")
            await kopf.execute(fns={
                'a': create_a,
                'b': create_b,
            })
            print("Leaving create()!")

        async def create_a(retry, **kwargs):
            if retry < 2:
                raise kopf.TemporaryError("Not ready yet.", delay=10)

        async def create_b(retry, **kwargs):
            if retry < 6:
                raise kopf.TemporaryError("Not ready yet.", delay=10)
    """)
    await operator.start()
    started = now()
    await kex.create_and_wait()
    assert now() - started == pytest.approx(60, abs=5)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("Leaving create()!") == 1
    assert lines[-1] == "Leaving create()!"
    assert 7 <= lines.count("Entering create()!") <= 14
    assert len(logs.find("Handler 'create/a' is invoked.")) == 3
    assert len(logs.find("Handler 'create/b' is invoked.")) == 7


async def test_parameters(operator: Operator, kex: Objects, load: Load) -> None:
    load("""
        import kopf

        @kopf.on.create('KopfExample', param=1000)
        @kopf.on.resume('KopfExample', param=100)
        @kopf.on.update('KopfExample', param=10, field='spec.field')
        @kopf.on.update('KopfExample', param=1, field='spec.items')
        def count_updates(param, patch, body, **_):
            patch.status['counter'] = body.status.get('counter', 0) + param
    """)
    await operator.start_and_handle(kex, spec={"field": 1, "items": []})
    for spec, counter in ({"field": 2}, 1010), ({"items": [1]}, 1011), ({"field": 3, "items": [2]}, 1022):
        await kex.merge({"spec": spec})
        obj = await kex.wait_handled(**spec)
        assert obj["status"]["counter"] == counter
    await operator.restart()
    await kex.wait(lambda obj: obj["status"]["counter"] == 1122)


async def test_overlapping_fields(operator: Operator, kex: Objects, load: Load, logs: Logs) -> None:
    load("""
        import kopf

        @kopf.on.update('KopfExample', param=10, field='spec.field')
        @kopf.on.update('KopfExample', param=1, field='spec')
        def fn(param, **_):
            pass
    """)
    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    assert logs.find("Handler 'fn/spec' succeeded.")
    assert logs.find("Handler 'fn/spec.field' succeeded.")
    assert logs.find("Updating is processed: 2 succeeded; 0 failed.")


async def test_startup_and_cleanup(operator: Operator, load: Load, logs: Logs) -> None:
    module = load("""
        import asyncio
        import kopf

        LOCK: asyncio.Lock

        @kopf.on.startup()
        async def startup_fn(logger, **kwargs):
            global LOCK
            LOCK = asyncio.Lock()  # uses the running asyncio loop by default

        @kopf.on.cleanup()
        async def cleanup_fn(logger, **kwargs):
            pass
    """)
    await operator.launch()
    assert isinstance(module.LOCK, asyncio.Lock)
    async with module.LOCK:
        pass
    await operator.stop()
    assert logs.find("Activity 'startup_fn' succeeded.")
    assert logs.find("Activity 'cleanup_fn' succeeded.")


async def test_events_of_handlers(operator: Operator, kex: Objects, load: Load) -> None:
    load("""
        import kopf

        @kopf.on.create('kopfexamples')
        def create_fn(body, **_):
            kopf.event(body,
                       type='SomeType',
                       reason='SomeReason',
                       message='Some message')

        @kopf.on.create('kopfexamples')
        def create_more(body, **_):
            kopf.warn(body, reason='SomeReason', message='Some message')
            kopf.info(body, reason='SomeReason', message='Some message')
            try:
                raise RuntimeError("Exception text.")
            except:
                kopf.exception(body, reason="SomeReason", message="Some exception:")
    """)

    operator.set("posting.enabled", True)
    operator.set("posting.loggers", False)
    await operator.start_and_handle(kex)
    await operator.stop()
    events = [(event["type"], event["message"]) for event in await kex.api.list_events()]
    assert sorted(events) == [("Error", "Some exception: Exception text."), ("Normal", "Some message"),
                              ("SomeType", "Some message"), ("Warning", "Some message")]
