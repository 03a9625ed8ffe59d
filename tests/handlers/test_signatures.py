"""Functions of handlers are judged by what they accept before they are called."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._handlers.current_handler import SubhandlingContext
from kopf._handlers.signatures import check_registry
from kopf._values.bodies import Body
from tests.handlers.builders import do_nothing, executing, make_changing_cause, make_changing_handler

Decorator = Callable[..., Callable[[Any], Any]]

ACTIVITIES: list[Decorator] = [kopf.on.startup, kopf.on.cleanup, kopf.on.login, kopf.on.probe]
SELECTED: list[Decorator] = [
    kopf.on.create,
    kopf.on.update,
    kopf.on.delete,
    kopf.on.resume,
    kopf.on.field,
    kopf.on.event,
    kopf.index,
    kopf.daemon,
    kopf.timer,
    kopf.on.validate,
    kopf.on.mutate,
]


def judge(fn: Any, decorator: Decorator = kopf.on.create, **options: Any) -> list[str]:
    """Declare the function in a fresh registry, and get what is wrong with it."""
    registry = kopf.OperatorRegistry()
    names = ["kopfexamples"] if decorator in SELECTED else []
    if decorator is kopf.on.field:
        options = {"field": "spec", **options}
    decorator(*names, registry=registry, **options)(fn)
    try:
        check_registry(registry)
    except kopf.DeclarationError as e:
        return [problem.rpartition(".py:")[2].partition(": ")[2] for problem in e.problems]
    return []


@pytest.mark.parametrize(
    ("decorator", "args", "problem", "advice"),
    [
        *(
            (decorator, "loger, **_", "requires 'loger', but there is no such argument", "Did you mean 'logger'?")
            for decorator in [*ACTIVITIES, *SELECTED]
        ),
        *(
            (decorator, "logger", "does not accept all arguments for ", "add '**_' to its parameters.")
            for decorator in [*ACTIVITIES, *SELECTED]
        ),
        *(
            (decorator, f"{name}, **_", f"requires '{name}'", "Remove it, or give it a default value.")
            for decorator, names in [
                (kopf.on.create, ["stopped", "event", "settings"]),
                (kopf.on.event, ["old"]),
                (kopf.daemon, ["reason"]),
                (kopf.timer, ["diff"]),
                (kopf.on.startup, ["spec"]),
                (kopf.on.validate, ["stopped"]),
            ]
            for name in names
        ),
        *(
            (decorator, f"{name}, **_", f"requires '{name}'", f"Did you mean '{meant}'?")
            for decorator, name, meant in [
                (kopf.on.event, "evnt", "event"),
                (kopf.daemon, "stoped", "stopped"),
                (kopf.on.startup, "setings", "settings"),
                (kopf.on.validate, "dry_run", "dryrun"),
            ]
        ),
    ],
)
def test_arguments_that_the_handler_does_not_get(decorator: Decorator, args: str, problem: str, advice: str) -> None:
    fns: dict[str, Any] = {}
    exec(f"def fn({args}): ...", fns)
    [text] = judge(fns["fn"], decorator)
    assert text.startswith(f"fn() {problem}")
    assert text.endswith(advice)


@pytest.mark.parametrize(
    ("decorator", "text", "right"),
    [
        (kopf.daemon, "def fn(stopped: str, **_)", "kopf.SyncStopped"),
        (kopf.daemon, "async def fn(stopped: 'bool', **_)", "kopf.Stopped"),
        (kopf.timer, "def fn(stopped: kopf.Stopped, **_)", "kopf.SyncStopped"),
        (kopf.daemon, "def fn(stopped: 'kopf.AsyncDaemonStopperChecker', **_)", "kopf.SyncStopped"),
        (kopf.daemon, "async def fn(stopped: kopf.SyncStopped, **_)", "kopf.Stopped"),
        (kopf.on.create, "def fn(spec: str, **_)", "kopf.Spec"),
        (kopf.on.create, "def fn(*, runtime: float, **_)", "datetime.timedelta"),
        (kopf.on.startup, "def fn(settings: 'str', **_)", "kopf.OperatorSettings"),
        (kopf.on.event, "def fn(event: bytes, **_)", "kopf.RawEvent"),
    ],
)
def test_arguments_that_are_annotated_as_what_they_never_are(decorator: Decorator, text: str, right: str) -> None:
    fns: dict[str, Any] = {}
    exec(compile(f"import kopf\n{text}: ...", __file__, "exec", dont_inherit=True), fns)
    [problem] = judge(fns["fn"], decorator)
    assert problem.startswith("fn() has '")
    assert problem.endswith(f", but it is {right}: annotate it so, or not at all.")


@pytest.mark.parametrize(
    ("decorator", "text"),
    [
        (kopf.daemon, "async def fn(stopped: kopf.Stopped, **_)"),
        (kopf.daemon, "async def fn(stopped: kopf.DaemonStopped, **_)"),
        (kopf.daemon, "def fn(stopped: 'kopf.SyncStopped', **_)"),
        (
            kopf.on.create,
            "def fn(spec: dict, meta: 'dict[str, str]', name: str, retry: int, param: str, memo: str, **_)",
        ),
        (kopf.on.create, "def fn(old: str, new: int, diff: list, patch: None = None, stopped: str = '', **_)"),
        (kopf.on.startup, "def fn(spec: str = '', **_)"),
    ],
)
def test_arguments_that_are_annotated_as_what_they_can_be(decorator: Decorator, text: str) -> None:
    fns: dict[str, Any] = {}
    exec(compile(f"import kopf\n{text}: ...", __file__, "exec", dont_inherit=True), fns)
    assert judge(fns["fn"], decorator) == []


@pytest.mark.parametrize(
    "code",
    [
        "lambda **_: 0",
        "lambda spec, **_: 0",
        "lambda *, spec, body, **_: 0",
        "lambda *args, spec, **_: 0",
        "lambda spec=1, my_default=5, **_: 0",
        "lambda spec=None, /, **_: 0",
        "functools.partial(lambda spec, db, **_: 0, db=1)",
        "functools.partial(lambda db, spec, **_: 0, 1)",
        "functools.partial(functools.partial(lambda db, host, spec, **_: 0, 1), host=2)",
        "Object().method",
        "Object.method_of_class",
        "Object.static",
        "Object()",
        "functools.partial(Object().method, db=1)",
        "functools.partial(staticmethod(lambda spec, **_: 0))",
        "staticmethod(lambda spec, **_: 0)",
        "injecting_db(lambda db, spec, **_: 0)",
        "injecting_db(injecting_db(lambda db, spec, **_: 0))",
        "holding_back(lambda spec: 0)",
        "functools.partial(injecting_db(lambda db, spec, **_: 0), x=1)",
        "pretending(lambda **_: 0)",
        "print",
        "dict",
        "Object",
    ],
)
def test_what_can_work_is_accepted(code: str) -> None:
    assert judge(eval(code)) == []


class Object:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, spec: Any, db: Any = None, **_: Any) -> None: ...

    def method(self, spec: Any, db: Any = None, **_: Any) -> None: ...

    @classmethod
    def method_of_class(cls, spec: Any, **_: Any) -> None: ...

    @staticmethod
    def static(spec: Any, **_: Any) -> None: ...


class Broken:
    def __call__(self, spce: Any, **_: Any) -> None: ...

    def method(self, spce: Any, **_: Any) -> None: ...


def injecting_db(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **{**kwargs, "db": 1})

    return wrapper


def holding_back(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(spec: Any, **kwargs: Any) -> Any:
        return fn(spec)

    return wrapper


def pretending(fn: Callable[..., Any]) -> Callable[..., Any]:
    """As some libraries do, e.g. those that inject dependencies, or preserve the signatures by other means."""
    fn.__signature__ = "whatever"  # type: ignore[attr-defined]
    return fn


def demanding(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(db: Any, **kwargs: Any) -> Any:
        return fn(**kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("lambda spec, /, **_: 0", "requires 'spec' to be positional"),
        ("lambda body, event, **_: 0", "requires 'event'"),
        ("functools.partial(lambda db, spec, **_: 0)", "requires 'db'"),
        ("Broken().method", "requires 'spce'"),
        ("Broken()", "requires 'spce'"),
        ("demanding(lambda **_: 0)", "requires 'db'"),
        ("lambda *args: 0", "add '**_'"),
        ("staticmethod(lambda spec: 0)", "add '**_'"),
        ("lambda: 0", "add '**_'"),
    ],
)
def test_what_can_never_work_is_refused(code: str, expected: str) -> None:
    [problem] = judge(eval(code))
    assert expected in problem


def test_all_arguments_can_be_named() -> None:
    """It is risky for the future, but it works now."""

    def fn(
        activity: Any, settings: Any, logger: Any, memo: Any, param: Any, retry: Any, started: Any, runtime: Any
    ) -> None: ...

    assert judge(fn, kopf.on.startup) == []


def test_indices_are_arguments_wherever_they_are_declared(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("pods", registry=registry, when=lambda my_index, **_: True)
    @kopf.on.event("pods", registry=registry)
    @kopf.daemon("pods", registry=registry, initial_delay=lambda my_index, **_: 0)
    @kopf.on.validate("pods", registry=registry)
    @kopf.on.startup(registry=registry)
    @kopf.index("pods", registry=registry, id="another")
    def fn(my_index: Any, **_: Any) -> None: ...

    with pytest.raises(kopf.DeclarationError, match="requires 'my_index'"):
        check_registry(registry)

    @kopf.index("nodes", registry=registry)
    def my_index(**_: Any) -> None: ...

    check_registry(registry)


def test_similar_indices_are_suggested(registry: kopf.OperatorRegistry) -> None:
    @kopf.index("nodes", registry=registry)
    def my_index(**_: Any) -> None: ...

    @kopf.on.create("pods", registry=registry)
    def fn(my_indx: Any, **_: Any) -> None: ...

    with pytest.raises(kopf.DeclarationError, match="Did you mean 'my_index'?"):
        check_registry(registry)


def test_all_problems_are_told_with_their_places(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pathlib.Path(__file__).parent)

    @kopf.on.create("pods", registry=registry)
    @kopf.on.update("pods", registry=registry)
    def one(spce: Any, **_: Any) -> None: ...

    @kopf.on.event("pods", registry=registry, when=lambda spec: True)
    def two(**_: Any) -> None: ...

    with pytest.raises(kopf.DeclarationError) as e:
        check_registry(registry)
    prefix = "test_all_problems_are_told_with_their_places.<locals>"
    line = one.__code__.co_firstlineno
    assert list(e.value.problems) == [
        f"test_signatures.py:{line}: {prefix}.one() requires 'spce', but there is no such argument for "
        f"handlers of changes. Did you mean 'spec'?",
        f"test_signatures.py:{line + 4}: {prefix}.<lambda>() does not accept all arguments for "
        f"when= of '{prefix}.two', present and future: add '**_' to its parameters.",
    ]
    assert str(e.value) == "\n".join(e.value.problems)


@pytest.mark.parametrize(
    ("option", "decorator"),
    [
        ("when", kopf.on.create),
        ("when", kopf.on.event),
        ("when", kopf.on.validate),
        ("when", kopf.index),
        ("when", kopf.timer),
        ("initial_delay", kopf.timer),
        ("initial_delay", kopf.daemon),
    ],
)
def test_callbacks(option: str, decorator: Decorator) -> None:
    assert judge(do_nothing, decorator, **{option: lambda body, **_: 0}) == []
    [problem] = judge(do_nothing, decorator, **{option: lambda: 0})
    assert f"for {option}= of 'do_nothing'" in problem
    assert "add '**_'" in problem
    [problem] = judge(do_nothing, decorator, **{option: lambda bdy, **_: 0})
    assert "requires 'bdy'" in problem
    [problem] = judge(do_nothing, decorator, **{option: lambda retry, **_: 0})  # it is not known yet
    assert "requires 'retry'" in problem


@pytest.mark.parametrize(
    ("options", "decorator"),
    [
        (lambda fn: {"labels": {"x": fn}}, kopf.on.create),
        (lambda fn: {"annotations": {"x": fn}}, kopf.on.event),
        (lambda fn: {"field": "spec", "value": fn}, kopf.timer),
        (lambda fn: {"field": "spec", "value": fn}, kopf.on.validate),
        (lambda fn: {"field": "spec", "old": fn}, kopf.on.update),
        (lambda fn: {"field": "spec", "new": fn}, kopf.on.field),
    ],
)
def test_callbacks_of_values(options: Callable[[Any], dict[str, Any]], decorator: Decorator) -> None:
    assert judge(do_nothing, decorator, **options(lambda value, **_: 0)) == []
    assert judge(do_nothing, decorator, **options(lambda value, /, body, **_: 0)) == []
    assert judge(do_nothing, decorator, **options(lambda *_, **__: 0)) == []
    for fn, expected in [
        (lambda value: 0, "add '**_'"),
        (lambda value, bdy, **_: 0, "requires 'bdy'"),
        (lambda *, value, **_: 0, "does not take the value as its first argument"),
        (lambda **_: 0, "does not take the value as its first argument"),
        (lambda name, **_: 0, "cannot be named 'name': rename it"),
    ]:
        [problem] = judge(do_nothing, decorator, **options(fn))
        assert expected in problem


def test_combined_callbacks_are_not_judged() -> None:
    assert judge(do_nothing, when=kopf.not_(kopf.all_([lambda body, **_: True]))) == []


def make_context() -> SubhandlingContext:
    async def execute(*_: Any, **__: Any) -> None: ...

    cause = make_changing_cause({}, indices={"my_index": object()})
    return SubhandlingContext(parent=make_changing_handler("parent"), cause=cause, execute=execute)


def test_subhandlers_are_judged_when_declared() -> None:
    context = make_context()
    with executing(Body({}), context):
        kopf.register(lambda my_index, **_: None, id="good")
        with pytest.raises(kopf.DeclarationError, match=r"test_signatures.py:\d+: .*requires 'spce'"):
            kopf.register(lambda spce, **_: None, id="bad")
    assert [handler.id for handler in context.declared] == ["parent/good"]


async def test_executed_functions_are_judged() -> None:
    with executing(Body({}), make_context()):
        await kopf.execute(fns=[lambda my_index, **_: None])
        with pytest.raises(kopf.DeclarationError, match=r"test_signatures.py:\d+: .*add '\*\*_'"):
            await kopf.execute(fns=[lambda spec: None])
