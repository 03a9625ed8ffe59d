"""
The samples of the documentation: short operators, as users would type them, each run from a file of its own.

Where a sample creates something in the cluster, the official client library is used for that, as users do it too.
Left out, as they belong to other features: daemons and timers, admission, indexing, probes, peering.
"""
from __future__ import annotations

import json

import pytest

from tests.behaviour.conftest import Load, make_crd
from tests.behaviour.objects import API, Objects, get_finalizers, watch
from tests.behaviour.running import Logs, Operator

pytestmark = pytest.mark.usefixtures("as_users_run_it", "in_memory")


@pytest.mark.parametrize("signature", ["spec, **_", "spec: kopf.Spec, **_: Any"])
async def test_registering(operator: Operator, kex: Objects, logs: Logs, load: Load, signature: str) -> None:
    load(f"""
        from typing import Any
        import kopf

        @kopf.on.create('kopfexamples')
        def my_handler({signature}):
            pass
    """)
    await operator.start_and_handle(kex)
    assert logs.find("Handler 'my_handler' succeeded.")


async def test_methods(
        operator: Operator, kex: Objects, logs: Logs, load: Load, capsys: pytest.CaptureFixture[str],
) -> None:
    load("""
        import kopf

        class MyCls:
            def my_handler(self, spec, **kwargs):
                print(repr(self))

        instance = MyCls()
        kopf.on.create('kopfexamples')(instance.my_handler)
    """)
    await operator.start_and_handle(kex)
    assert logs.find("Handler 'MyCls.my_handler' succeeded.")
    assert "MyCls object at" in capsys.readouterr().out


@pytest.mark.parametrize("signature", ["event, **_", "event: kopf.RawEvent, **_: Any"])
async def test_raw_events(operator: Operator, kex: Objects, logs: Logs, load: Load, signature: str) -> None:
    load(f"""
        from typing import Any
        import kopf

        @kopf.on.event('kopfexamples')
        def my_handler({signature}):
            pass
    """)
    await operator.start_and_create(kex)
    await logs.wait("Handler 'my_handler' succeeded.")
    assert all("annotations" not in obj["metadata"] for obj in kex.get_history())


@pytest.mark.parametrize(("any_", "diff"), [("**_", "diff"), ("**_: Any", "diff: kopf.Diff")])
async def test_three_causes_by_functions_of_one_name(
        operator: Operator, kex: Objects, logs: Logs, load: Load, any_: str, diff: str,
) -> None:
    load(f"""
        from typing import Any
        import kopf

        @kopf.on.create('kopfexamples')
        def my_handler(spec, {any_}):
            pass

        @kopf.on.update('kopfexamples')
        def my_handler(spec, old, new, {diff}, {any_}):
            pass

        @kopf.on.delete('kopfexamples')
        def my_handler(spec, {any_}):
            pass
    """)
    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    await kex.delete_and_wait()
    for title in ("Creation", "Updating", "Deletion"):
        assert logs.find(f"{title} is processed: 1 succeeded; 0 failed.")


async def test_reacting_to_the_status(operator: Operator, logs: Logs, load: Load, api: API) -> None:
    """The local cluster has no jobs of its own yet, and it is not allowed to define them in the group of built-ins."""
    load("""
        import kopf

        @kopf.on.update('batch.example.com/v1', 'jobs', field='status')
        def job_status_changes(**_):
            pass
    """)
    crd = json.loads(json.dumps(make_crd("Job", "jobs", status=True)).replace("kopf.dev", "batch.example.com"))
    operator.cluster.apply(crd)
    await operator.start(watching=("jobs",))
    async with watch(api, "Job", "jobs", group="batch.example.com") as jobs:
        await jobs.create()
        await jobs.merge({"status": {"active": 1}}, subresource="status")
        await jobs.wait_handled()
        await jobs.merge({"status": {"succeeded": 1}}, subresource="status")
        await logs.wait("Handler 'job_status_changes/status' succeeded.")
        await operator.stop()


@pytest.mark.parametrize("code", ["""
    import kopf

    @kopf.on.resume('kopfexamples')
    def my_handler(spec, **_):
        pass
""", """
    import kopf

    @kopf.on.resume('kopfexamples')
    @kopf.on.create('kopfexamples')
    def my_handler(spec, **_):
        pass
"""], ids=["only", "with-creation"])
async def test_resuming(operator: Operator, kex: Objects, logs: Logs, load: Load, code: str) -> None:
    load(code)
    await kex.create()
    await operator.start()
    await logs.wait("Handler 'my_handler' succeeded.")
    await kex.wait_handled()
    await operator.restart()
    await logs.wait("Resuming is processed: 1 succeeded; 0 failed.")
    assert len(logs.find("Handler 'my_handler' succeeded.")) == 2


async def test_tasks_from_resuming_to_deletion(operator: Operator, kex: Objects, load: Load) -> None:
    module = load("""
        import asyncio
        import kopf

        TASKS = {}

        async def some_coroutine(spec):
            await asyncio.Event().wait()

        @kopf.on.delete('kopfexamples')
        async def my_handler(spec, name, **_):
            if name in TASKS:
                TASKS[name].cancel()

        @kopf.on.resume('kopfexamples')
        @kopf.on.create('kopfexamples')
        async def my_handler(spec, name, **_):
            if name not in TASKS:
                TASKS[name] = asyncio.create_task(some_coroutine(spec))
    """)
    await kex.create("existing")
    await operator.start()
    await kex.wait_handled("existing")
    await kex.create_and_wait("new")
    assert [(name, task.done()) for name, task in module.TASKS.items()] == [("existing", False), ("new", False)]
    for name in module.TASKS:
        await kex.delete_and_wait(name)
    assert all(task.cancelled() for task in module.TASKS.values())


async def test_resuming_of_deleted_objects(operator: Operator, kex: Objects, logs: Logs, load: Load) -> None:
    load("""
        import kopf

        @kopf.on.delete('kopfexamples')
        def another_handler(spec, **_):
            pass

        @kopf.on.resume('kopfexamples', deleted=True)
        def my_handler(spec, **_):
            pass
    """)
    await operator.start_and_handle(kex)
    assert get_finalizers(await kex.get())
    await operator.stop()
    await kex.delete()
    await operator.start()
    await kex.wait_gone()
    assert logs.find("Deletion is processed: 2 succeeded; 0 failed.")


async def test_fields(operator: Operator, kex: Objects, logs: Logs, load: Load) -> None:
    load("""
        import kopf

        @kopf.on.field('kopfexamples', field='spec.somefield')
        def somefield_changed(old, new, **_):
            pass
    """)
    await operator.start_and_handle(kex, spec={"somefield": 1})
    await kex.change_and_wait(somefield=2)
    assert logs.find("Updating is processed: 1 succeeded; 0 failed.")
    assert logs.find("Handler 'somefield_changed/spec.somefield' succeeded.")


@pytest.mark.parametrize("code", ["""
    import functools
    import kopf

    @kopf.on.create('kopfexamples')
    async def create_fn(spec, **_):
        fns = {}

        for item in spec.get('items', []):
            fns[item] = functools.partial(handle_item, item=item)

        await kopf.execute(fns=fns)

    def handle_item(item, *, spec, **_):
        pass
""", """
    import kopf

    @kopf.on.create('kopfexamples')
    def create_fn(spec, **_):

        for item in spec.get('items', []):

            @kopf.subhandler(id=item)
            def handle_item(item=item, **_):
                pass
"""], ids=["imperative", "declarative"])
async def test_subhandlers(operator: Operator, kex: Objects, logs: Logs, load: Load, code: str) -> None:
    load(code)
    await operator.start_and_handle(kex, spec={"items": ["item1", "item2"]})
    for id in ("create_fn/item1", "create_fn/item2", "create_fn"):
        assert len(logs.find(f"Handler '{id}' succeeded.")) == 1
