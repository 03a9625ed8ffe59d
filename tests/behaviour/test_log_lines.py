"""The log lines that users' tests and log searches rely on."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest

import kopf
from kopf._logging.configuration import make_formatter
from tests.behaviour.objects import Objects, get_finalizers
from tests.behaviour.running import Logs, Operator, do_nothing

HIGH = logging.INFO


async def test_a_whole_life(operator: Operator, kex: Objects, logs: Logs) -> None:
    kopf.on.create("kopfexamples", id="create_fn")(do_nothing)
    kopf.on.update("kopfexamples", id="update_fn")(do_nothing)
    kopf.on.delete("kopfexamples", id="delete_fn")(do_nothing)
    await operator.start_and_handle(kex)
    await kex.change_and_wait(field="new")
    await logs.wait(".*waiting for new changes.*", times=2)
    await kex.merge({"status": {"field": "theirs"}})
    await logs.wait(".*waiting for new changes.*", times=3)
    await kex.delete()
    await logs.wait("Deleted, really deleted, and we are notified.")
    essence = r'\{"spec":\{"field":"(value|new)"\}\}'
    storing = rf"\{{.*'annotations': \{{'kopf.zalando.org/last-handled-configuration': '{essence}\\n'\}}.*\}}"
    expected = [
        r"Adding the finalizer, thus preventing the actual deletion\.",
        r"JSON-patching the resource with: \[.*\]",
        r"Creation is in progress: \{'apiVersion': .*\}",
        r"Handler 'create_fn' is invoked\.",
        r"Handler 'create_fn' succeeded\.",
        r"Creation is processed: 1 succeeded; 0 failed\.",
        r"Merge-patching the resource with: " + storing,
        r"Handling cycle is finished, waiting for new changes\.",
        r"Updating is in progress: \{'apiVersion': .*\}",
        r"Updating diff: \(\('change', \('spec', 'field'\), 'value', 'new'\),\)",
        r"Handler 'update_fn' is invoked\.",
        r"Handler 'update_fn' succeeded\.",
        r"Updating is processed: 1 succeeded; 0 failed\.",
        r"Merge-patching the resource with: " + storing,
        r"Handling cycle is finished, waiting for new changes\.",
        r"Something has changed, but we are not interested \(the essence is the same\)\.",
        r"Handling cycle is finished, waiting for new changes\.",
        r"Deletion is in progress: \{'apiVersion': .*\}",
        r"Handler 'delete_fn' is invoked\.",
        r"Handler 'delete_fn' succeeded\.",
        r"Deletion is processed: 1 succeeded; 0 failed\.",
        r"Removing the finalizer, thus allowing the actual deletion\.",
        r"JSON-patching the resource with: \[.*\]",
        r"Deleted, really deleted, and we are notified\.",
    ]
    messages = logs.get_messages("obj")
    # The order matters; whatever else is logged in between does not.
    rest = iter(messages)
    for pattern in expected:
        assert any(re.fullmatch(pattern, message, re.DOTALL) for message in rest), (pattern, messages)
    assert logs.get_messages("obj", level=HIGH) == [
        "Handler 'create_fn' succeeded.",
        "Creation is processed: 1 succeeded; 0 failed.",
        "Handler 'update_fn' succeeded.",
        "Updating is processed: 1 succeeded; 0 failed.",
        "Handler 'delete_fn' succeeded.",
        "Deletion is processed: 1 succeeded; 0 failed.",
    ]


async def test_resuming(operator: Operator, kex: Objects, logs: Logs) -> None:
    kopf.on.create("kopfexamples", id="fn")(lambda **_: None)
    kopf.on.resume("kopfexamples", id="resume_fn")(lambda **_: None)
    await operator.start_and_handle(kex)
    await operator.stop()
    logs.records.items.clear()
    await operator.start()
    await logs.wait("Resuming is processed: 1 succeeded; 0 failed.")
    assert logs.find(r"Resuming is in progress: \{.*\}")
    assert logs.find("Handler 'resume_fn' is invoked.")
    assert logs.find("Handler 'resume_fn' succeeded.")


async def test_patching_of_the_status(operator: Operator, sub: Objects, logs: Logs) -> None:
    kopf.on.create("kopfstatusexamples", id="fn")(lambda **_: 123)
    await operator.start_and_handle(sub)
    assert logs.find(r"Merge-patching the status with: \{'status': \{'fn': 123\}\}")


async def test_the_disappearance_of_idle_objects(operator: Operator, kex: Objects, logs: Logs) -> None:
    kopf.on.create("kopfexamples")(lambda **_: None)
    await operator.start_and_handle(kex)
    await logs.wait(".*waiting for new changes.*")
    await kex.create_and_wait("another")
    await kex.delete()
    await logs.wait("Deleted, really deleted, and we are notified.")


async def test_the_last_life_signs_of_objects_held_by_others(operator: Operator, kex: Objects, logs: Logs) -> None:
    kopf.on.delete("kopfexamples")(lambda **_: None)
    await operator.start_and_handle(kex, finalizers=["example.com/theirs"])
    await kex.delete()
    await kex.wait(lambda obj: get_finalizers(obj) == ["example.com/theirs"])
    await kex.merge({"spec": {"field": "new"}})
    await logs.wait("Deletion, but we are done with it, and we do not care.")
    await kex.release()
    await logs.wait("Deleted, really deleted, and we are notified.")


async def test_streams_and_login(operator: Operator, logs: Logs) -> None:
    kopf.on.event("kopfexamples")(lambda **_: None)
    await operator.start()
    await operator.stop()
    await operator.start(clusterwide=False, namespaces=["default"])
    await operator.stop()
    messages = logs.get_messages()
    assert "Initial authentication has been initiated." in messages
    assert "Initial authentication has finished." in messages
    for scope in ("cluster-wide", "in 'default'"):
        assert f"Starting the watch-stream for kopfexamples.v1.kopf.dev {scope}." in messages
        assert f"Stopping the watch-stream for kopfexamples.v1.kopf.dev {scope}." in messages
    records = logs.find("Activity '_login' succeeded.")
    assert {record.name for record in records} == {"kopf.activities.authentication"}
    records = logs.find("Initial authentication has .*")
    assert {record.name for record in records} == {"kopf._core.engines.activities"}


async def test_activities(operator: Operator, logs: Logs) -> None:
    kopf.on.startup(id="cfg")(lambda **_: None)
    kopf.on.cleanup(id="cln")(lambda **_: None)
    await operator.launch()
    await operator.stop()
    messages = [
        (record.name, record.levelname, record.getMessage())
        for record in logs.records
        if record.name in ("kopf.activities.startup", "kopf.activities.cleanup")
    ]
    assert messages == [
        ("kopf.activities.startup", "DEBUG", "Activity 'cfg' is invoked."),
        ("kopf.activities.startup", "INFO", "Activity 'cfg' succeeded."),
        ("kopf.activities.cleanup", "DEBUG", "Activity 'cln' is invoked."),
        ("kopf.activities.cleanup", "INFO", "Activity 'cln' succeeded."),
    ]


async def test_handlers_log_about_their_objects(operator: Operator, kex: Objects, logs: Logs) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(logger: kopf.Logger, **_: Any) -> None:
        logger.info("Hello, %s!", "world")

    @kopf.on.event("kopfexamples")
    async def event_fn(logger: kopf.Logger, event: kopf.RawEvent, **_: Any) -> None:
        logger.warning("Event: %s", event["type"])

    await operator.start_and_handle(kex)
    for pattern in ("Hello, world!", "Event: ADDED"):
        record = await logs.wait(pattern)
        assert record.name == "kopf.objects"
        ref = getattr(record, "k8s_ref", None)
        assert ref is not None
        assert {**ref} == {
            "apiVersion": "kopf.dev/v1",
            "kind": "KopfExample",
            "name": "obj",
            "namespace": "default",
            "uid": (await kex.get())["metadata"]["uid"],
        }


@pytest.mark.fastforward
async def test_replicas_with_different_namespaces(operator: Operator, logs: Logs) -> None:
    """They are two operators with one Lease: the objects of a standby would have no operator, without a word."""
    kopf.on.create("kopfexamples", id="create_fn")(do_nothing)
    other = Operator(operator.cluster, operator.registry)
    for replica, name in ((operator, "one"), (other, "two")):
        replica.set("coordination.mode", "leader")
        replica.set("coordination.identity", name)
    await operator.launch(clusterwide=False, namespaces=["one"])
    await logs.wait("Leading as one: .*")
    await other.launch(clusterwide=False, namespaces=["two"])
    await logs.wait(
        "The replicas of .* have different handlers or namespaces: this one is two .*, another one is one .*"
    )
    await other.stop()


@pytest.mark.parametrize("log_format", [kopf.LogFormat.FULL, kopf.LogFormat.PLAIN, kopf.LogFormat.JSON])
async def test_formats(operator: Operator, kex: Objects, log_format: kopf.LogFormat) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.INFO)
    handler.setFormatter(make_formatter(log_format=log_format))
    logger = logging.getLogger("kopf.objects")
    kopf.on.create("kopfexamples", id="create_fn")(lambda **_: None)
    logger.addHandler(handler)
    try:
        await operator.start_and_handle(kex)
        await operator.stop()
    finally:
        logger.removeHandler(handler)
    lines = stream.getvalue().splitlines()
    if log_format is kopf.LogFormat.JSON:
        assert json.loads(lines[0])["message"] == "Handler 'create_fn' succeeded."
        assert json.loads(lines[0])["object"]["name"] == "obj"
        assert json.loads(lines[0])["severity"] == "info"
    elif log_format is kopf.LogFormat.PLAIN:
        assert lines[0] == "[default/obj] Handler 'create_fn' succeeded."
    else:
        assert re.fullmatch(
            r"\[[-\d]+ [:,\d]+\] kopf\.objects         \[INFO    \] \[default/obj\] Handler 'create_fn' succeeded\.",
            lines[0],
        )
