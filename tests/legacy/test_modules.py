"""Imports from the private modules of the original framework: they work, are warned of, and cost nothing otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import operator
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

import kopf
import kopf.testing
from kopf._legacy import formatters
from kopf._legacy.context_variables import K8sEvent, enqueue, event_queue_var, settings_var
from kopf._legacy.dicts import cherrypick, ensure, remove, resolve
from kopf._legacy.former_modules import _TABLE, MODULES, find_target
from tests.patience import PATIENCE

FORMER_NAMES = {
    module: [item.partition("=")[0] for names in _TABLE.get(module, {}).values() for item in names.split()]
    for module in sorted(MODULES)
}


@contextlib.contextmanager
def warned(pattern: str) -> Iterator[None]:
    """Check that the code is warned of, and that the warning points to it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    assert [(item.category, item.filename) for item in found] == [(DeprecationWarning, __file__)]
    assert pattern in str(found[0].message)


def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_the_table_is_of_modules() -> None:
    assert _TABLE.keys() <= MODULES


@pytest.mark.parametrize("module", FORMER_NAMES)
def test_everything_in_the_table_exists(module: str) -> None:
    former = importlib.import_module(module)
    assert former.__name__ == module
    for name in FORMER_NAMES[module]:
        with warned(f"{module}.{name} is private."):
            value = getattr(former, name)
        target = find_target(module, name)
        assert target is not None
        assert value is operator.attrgetter(target.name)(importlib.import_module(target.module))


# What is imported by public operators, and in what ways.
SAMPLES = {
    "from kopf._cogs.structs.bodies import Body as it": kopf.Body,
    "from kopf._cogs.structs.bodies import RawEvent as it": kopf.RawEvent,
    "from kopf._cogs.structs import bodies; it = bodies.Body": kopf.Body,
    "import kopf._cogs.structs.bodies; it = kopf._cogs.structs.bodies.Status": kopf.Status,
    "import kopf; it = kopf._cogs.structs.diffs.DiffItem": kopf.DiffItem,
    "import kopf; it = kopf._core.actions.execution.Logger": kopf.Logger,
    "from kopf._cogs.structs.ephemera import Memo as it": kopf.Memo,
    "from kopf._cogs.structs.patches import Patch as it": kopf.Patch,
    "from kopf._cogs.structs.credentials import LoginError as it": kopf.LoginError,
    "from kopf._cogs.configs.configuration import OperatorSettings as it": kopf.OperatorSettings,
    "from kopf._cogs.configs.progress import ProgressRecord as it": kopf.ProgressRecord,
    "from kopf._cogs.clients.errors import APINotFoundError as it": kopf.APINotFoundError,
    "from kopf._cogs.clients.errors import APIUnprocessableEntityError as it": kopf.APIUnprocessableError,
    "from kopf._core.intents.causes import Reason as it": kopf.Reason,
    "from kopf._core.intents.registries import SmartOperatorRegistry as it": kopf.OperatorRegistry,
    "from kopf._core.intents.callbacks import not_ as it": kopf.not_,
    "from kopf._core.actions.execution import PermanentError as it": kopf.PermanentError,
    "from kopf._core.actions.lifecycles import all_at_once as it": kopf.lifecycles.all_at_once,
    "from kopf._core.actions import loggers; it = loggers.ObjectLogger": kopf.ObjectLogger,
    "from kopf._core.engines.activities import ActivityError as it": kopf.ActivityError,
    "from kopf._core.engines import posting; it = posting.event": kopf.event,
    "from kopf._core.reactor.running import operator as it": kopf.operator,
    "from kopf._kits.runner import KopfRunner as it": kopf.testing.KopfRunner,
    "from kopf._kits.webhooks import WebhookServer as it": kopf.WebhookServer,
}


@pytest.mark.parametrize("code", SAMPLES)
def test_former_imports(code: str) -> None:
    namespace: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        exec(compile(code, "handlers.py", "exec"), namespace)
    assert namespace["it"] is SAMPLES[code]
    assert {(item.category, item.filename, item.lineno) for item in found} == {(DeprecationWarning, "handlers.py", 1)}
    assert " is private. Use kopf" in str(found[0].message)


def test_the_first_import_in_a_process() -> None:
    """Where nothing of it is loaded yet."""
    result = run(
        """
        from kopf._core.intents.causes import Reason
        import kopf
        assert Reason is kopf.Reason
        assert kopf._cogs.structs.bodies.Body is kopf.Body
    """,
        "-W",
        "always",
    )
    assert result.returncode == 0
    assert [line for line in result.stderr.splitlines() if "<string>" in line] == [
        "<string>:2: DeprecationWarning: kopf._core.intents.causes.Reason is private. Use kopf.Reason instead.",
        "<string>:5: DeprecationWarning: kopf._cogs.structs.bodies.Body is private. Use kopf.Body instead.",
    ]


@pytest.mark.parametrize(
    ("code", "error", "replacement"),
    [
        ("from kopf._cogs.structs.bodies import RawInput", ImportError, "what the module 'kopf' offers."),
        ("from kopf._cogs.structs import finalizers", ImportError, ""),
        ("import kopf._cogs.structs.bodies as bodies; bodies.RawInput", AttributeError, ""),
        ("import kopf._cogs.clients.api", ModuleNotFoundError, "client library"),
        ("from kopf._cogs.clients.api import get", ModuleNotFoundError, ""),
        ("from kopf._core.reactor.queueing import watcher", ModuleNotFoundError, ""),
        ("from kopf._kits.runner import KopfThread", ImportError, ""),
        ("from kopf._kits.webhooks import ClusterDetector", ImportError, ""),
        ("from kopf._cogs.aiokits import aiotoggles", ImportError, "asyncio.Event"),
        ("from kopf._cogs.clients import api", ImportError, "client library"),
        ("from kopf._cogs.clients.patching import patch_obj", ImportError, "kwarg 'patch'"),
        ("import kopf._core.actions.throttlers", ImportError, "settings.queueing.error_delays"),
        ("from kopf._core.engines import daemons", ImportError, "@kopf.daemon"),
        ("from kopf._core.engines.indexing import OperatorIndexers", ImportError, "@kopf.index"),
        ("from kopf._core.reactor.inventory import ResourceMemory", ImportError, "kwarg 'memo'"),
    ],
)
def test_what_has_no_counterpart_says_what_to_use_instead(code: str, error: type[Exception], replacement: str) -> None:
    text = rf"^There is no .* internal part of Kopf 1\. Use .*{re.escape(replacement)}.*$"
    with pytest.raises(error, match=text) as info:
        exec(code, {})
    assert str(info.value).endswith(".")


def test_it_can_be_asked_whether_something_is_there() -> None:
    bodies = importlib.import_module("kopf._cogs.structs.bodies")
    assert not hasattr(bodies, "RawInput")
    assert not hasattr(bodies, "__all__")
    assert not hasattr(kopf, "_nonexistent")
    assert not hasattr(importlib.import_module("kopf._kits.webhooks"), "nonexistent")
    with warned("Use kopf.Body instead"):
        assert hasattr(bodies, "Body")


def test_nothing_is_loaded_for_those_who_do_not_need_it() -> None:
    result = run("""
        import sys, kopf, kopf.testing
        finders = [type(finder).__module__ for finder in sys.meta_path]
        kopf.OperatorRegistry(), kopf.WebhookServer()
        hasattr(kopf, 'nonexistent')
        formers = ('kopf._legacy', 'kopf._cogs', 'kopf._core')
        print([name for name in [*sys.modules, *finders] if name.startswith(formers)])
    """)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    ("data", "field", "value"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": {"b": 1}}, ["a"], {"b": 1}),
        ({"a": 1}, None, {"a": 1}),
        ({"a": None}, "a", None),
    ],
)
def test_resolving(data: Any, field: Any, value: Any) -> None:
    assert resolve(data, field) == resolve(data, field, "default") == value


def test_resolving_what_is_absent() -> None:
    assert resolve({"a": {}}, "a.b", 123) == resolve({"a": 1}, "a.b", 123) == resolve(None, "a", 123) == 123
    with pytest.raises(KeyError):
        resolve({"a": {}}, "a.b")
    with pytest.raises(TypeError):
        resolve({"a": 1}, "a.b")


def test_changing_dicts() -> None:
    data: dict[str, Any] = {}
    ensure(data, "a.b", 1)
    ensure(data, ("a", "c", "d"), 2)
    assert data == {"a": {"b": 1, "c": {"d": 2}}}
    remove(data, "a.c.d")
    remove(data, "a.x.y")
    remove(data, "x")
    assert data == {"a": {"b": 1}}
    remove(data, "a.b")
    assert data == {}
    with pytest.raises(ValueError, match="path is empty"):
        ensure(data, "", 1)
    with pytest.raises(ValueError, match="path is empty"):
        remove(data, None)


def test_picking_from_dicts() -> None:
    source, target, shown = {"a": {"b": [1]}, "c": 2}, dict[str, Any](), dict[str, Any]()
    cherrypick(source, target, ["a.b", "q"])
    cherrypick(source, shown, ["a.b", ("c",)], picker=repr)
    cherrypick(source, shown, None)
    assert target == {"a": {"b": [1]}}
    assert shown == {"a": {"b": "[1]"}, "c": "2"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("path", "reduced"),
    [
        (
            (),
            [
                ("change", ("spec", "a"), 1, 5),
                ("change", ("spec", "b", "c"), 2, 3),
                ("add", ("x",), None, {"y": {"z": 1}}),
            ],
        ),
        ("spec", [("change", ("a",), 1, 5), ("change", ("b", "c"), 2, 3)]),
        (("spec", "b", "c"), [("change", (), 2, 3)]),
        (("x", "y"), [("add", (), None, {"z": 1})]),
        (("x", "y", "z", "none"), []),
        ("absent", []),
    ],
)
def test_reducing_diffs(path: Any, reduced: list[Any]) -> None:
    diffs = importlib.import_module("kopf._cogs.structs.diffs")
    d = diffs.diff({"spec": {"a": 1, "b": {"c": 2}}}, {"spec": {"a": 5, "b": {"c": 3}}, "x": {"y": {"z": 1}}})
    assert list(diffs.reduce(d, path)) == reduced


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_context_variables_for_a_block() -> None:
    context = importlib.import_module("kopf._core.actions.invocation").context
    one, two = ContextVar("one", default=1), ContextVar("two", default=2)
    with context([(one, 10), (two, 20)]):
        assert (one.get(), two.get()) == (10, 20)
    assert (one.get(), two.get()) == (1, 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_stopping_a_daemon_that_is_called_in_a_test() -> None:
    stoppers, done, gone = importlib.import_module("kopf._core.intents.stoppers"), *kopf.DaemonStoppingReason(5)
    stopper = stoppers.DaemonStopper()
    assert not stopper.is_set()
    assert not stopper.is_set(done)
    assert not stopper.async_waiter
    assert not stopper.reason
    waiting = asyncio.create_task(stopper.async_waiter.wait())
    stopper.set()
    assert stopper.is_set()
    assert not stopper.reason
    stopper.set(reason=done)
    assert await waiting
    assert stopper.sync_waiter.wait(PATIENCE)
    assert stopper.sync_waiter.reason is stopper.async_waiter.reason is stopper.reason is done
    stopper.set(gone)
    assert stopper.is_set(reason=done)
    assert stopper.is_set(gone)
    assert not stopper.is_set(kopf.DaemonStoppingReason.OPERATOR_EXITING)


def test_formatters(caplog: pytest.LogCaptureFixture) -> None:
    body = {"metadata": {"name": "name1", "namespace": "ns1"}}
    kopf.ObjectLogger(body=body, settings=kopf.OperatorSettings()).warning("hello")
    [record] = caplog.records
    assert formatters.ObjectTextFormatter("%(levelname)s %(message)s").format(record) == "WARNING hello"
    assert formatters.ObjectPrefixingTextFormatter().format(record) == "[ns1/name1] hello"
    assert '"message": "hello"' in formatters.ObjectJsonFormatter(refkey="k8s").format(record)
    assert '"k8s": {"name": "name1", "namespace": "ns1"}' in formatters.ObjectJsonFormatter(refkey="k8s").format(record)
    assert '"message": "[ns1/name1] hello"' in formatters.ObjectPrefixingJsonFormatter().format(record)


def test_events_go_to_ones_own_queue() -> None:
    queue: asyncio.Queue[K8sEvent] = asyncio.Queue()
    settings = kopf.OperatorSettings()
    assert event_queue_var.get(None) is settings_var.get(None) is None
    for variable in (event_queue_var, settings_var):
        with pytest.raises(LookupError):
            variable.get()
    settings_token, token = settings_var.set(settings), event_queue_var.set(queue)
    try:
        assert settings_var.get() is settings
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod1"}}
        kopf.warn(obj, reason="Why", message="What")
        enqueue({"name": "pod2"}, "Normal", "Why", "What")
        settings.posting.enabled = False
        kopf.warn(obj, reason="Never", message="Seen")
    finally:
        event_queue_var.reset(token)
        settings_var.reset(settings_token)
    ref = kopf.build_object_reference(obj)
    assert queue.get_nowait() == K8sEvent(ref, "Warning", "Why", "What", settings.posting.default_backoffs)
    assert queue.get_nowait() == K8sEvent({"name": "pod2"}, "Normal", "Why", "What", ())
    assert queue.empty()
    assert event_queue_var.get(None) is None
