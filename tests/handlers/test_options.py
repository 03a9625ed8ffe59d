"""The options of the decorators: what is wrong with them is said at once, and where."""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf._handlers.current_handler import SubhandlingContext
from kopf._values.bodies import Body
from tests.handlers.builders import do_nothing, executing, make_changing_cause, make_changing_handler

Decorator = Callable[..., Callable[[Any], Any]]

ACTIVITIES: list[Decorator] = [kopf.on.startup, kopf.on.cleanup, kopf.on.login, kopf.on.probe]
CHANGES: list[Decorator] = [kopf.on.create, kopf.on.update, kopf.on.delete, kopf.on.resume, kopf.on.field]
RETRIED: list[Decorator] = [*ACTIVITIES, *CHANGES, kopf.index, kopf.daemon, kopf.timer]
SELECTED: list[Decorator] = [
    kopf.on.event,
    kopf.on.validate,
    kopf.on.mutate,
    kopf.index,
    kopf.daemon,
    kopf.timer,
    *CHANGES,
]
ALL: list[Decorator] = [*ACTIVITIES, *SELECTED]

WRONG_SECONDS = ["10s", "10", -1, -0.1, math.nan, [1], datetime.timedelta(seconds=1), decimal.Decimal(-1), 1j]
SECONDS: list[Any] = [0, 1, 1.5, True, math.inf, decimal.Decimal("1.5"), fractions.Fraction(3, 2)]


def declare(decorator: Decorator, registry: kopf.OperatorRegistry, **options: Any) -> Any:
    names = ["kopfexamples"] if decorator in SELECTED else []
    if decorator is kopf.on.field:
        options = {"field": "spec", **options}
    decorator(*names, registry=registry, **options)(do_nothing)
    handlers: list[Any] = [*registry.activities, *registry.resources, *registry.webhooks]
    assert len(handlers) == 1
    return handlers[0]


DELAYED: list[Decorator] = [kopf.timer, kopf.daemon]
REVIEWING: list[Decorator] = [kopf.on.validate, kopf.on.mutate]
FLAGS: list[tuple[Decorator, str]] = [
    (kopf.on.resume, "deleted"),
    (kopf.on.delete, "optional"),
    (kopf.daemon, "optional"),
    (kopf.timer, "optional"),
    (kopf.timer, "sharp"),
    *((decorator, option) for decorator in REVIEWING for option in ("persistent", "side_effects", "ignore_failures")),
]
NAMES = "group version kind plural singular shortcut category"
REFUSED: list[tuple[list[Decorator], str, list[Any], str]] = [
    (RETRIED, "timeout", WRONG_SECONDS, "must be a number of seconds (0 or more), got "),
    (RETRIED, "backoff", WRONG_SECONDS, "must be a number of seconds (0 or more), or kopf.exponential(...), got "),
    ([kopf.timer], "interval idle", WRONG_SECONDS, "must be a number of seconds (0 or more), got "),
    (DELAYED, "initial_delay", WRONG_SECONDS, "must be a number of seconds (0 or more), or a function"),
    (
        [kopf.daemon],
        "cancellation_backoff cancellation_timeout cancellation_polling",
        WRONG_SECONDS,
        "must be a number of seconds (0 or more), got ",
    ),
    (RETRIED, "retries", ["3", -1, [3], None.__class__], "must be a number of attempts"),
    (RETRIED, "errors", ["permanent", "PERMANENT", 3, Exception], "must be kopf.ErrorsMode.IGNORED, or"),
    (ALL, "id", [5, b"fn", ["fn"]], "must be a string, got "),
    (
        SELECTED,
        "labels annotations",
        ["x", {"x"}, ["x"], {"x": None}, {"x": 5}, {"x": True}, {5: "x"}],
        "must be a dict",
    ),
    (SELECTED, "when", ["x", True, {}], "must be a function"),
    (SELECTED, "field", [5, {"spec"}, ["spec", 5], b"spec"], "must be a dotted string"),
    ([kopf.on.create], NAMES, [5], "must be a string"),
    ([kopf.on.validate], "subresource", [True], "must be a string"),
    ([kopf.on.validate], "operations", [5], "must be a collection"),
    *(([decorator], flag, ["no", "false", "", 2, [True]], "must be True or False, got ") for decorator, flag in FLAGS),
]


async def check_later(*_: Any, **__: Any) -> bool:
    return False


@pytest.mark.parametrize("callback", [check_later, functools.partial(check_later, 1)])
@pytest.mark.parametrize("option", ["when", "labels", "annotations", "value", "old", "new", "initial_delay"])
def test_coroutine_functions_are_no_callbacks(
    registry: kopf.OperatorRegistry, option: str, callback: Callable[..., Any]
) -> None:
    """Kopf does not await them, so such filters would match all objects."""
    options: dict[str, Any] = {option: {"key": callback} if option in ("labels", "annotations") else callback}
    if option in ("value", "old", "new"):
        options["field"] = "spec.field"
    decorator: Decorator = kopf.daemon if option == "initial_delay" else kopf.on.update
    with pytest.raises(kopf.DeclarationError, match=f"{option}= must be synchronous"):
        declare(decorator, registry, **options)
    assert not registry


def get_refusal(registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: object) -> str:
    try:
        declare(decorator, registry, **{option: value})
    except kopf.DeclarationError as e:
        return str(e)
    return "accepted"


@pytest.mark.parametrize(
    ("decorator", "option", "values", "text"),
    [
        (decorator, option, values, text)
        for decorators, options, values, text in REFUSED
        for decorator in decorators
        for option in options.split()
    ],
)
def test_wrong_values_are_refused(
    registry: kopf.OperatorRegistry, decorator: Decorator, option: str, values: list[object], text: str
) -> None:
    said = [get_refusal(registry, decorator, option, value) for value in values]
    assert [answer for answer in said if f"{option}= {text}" not in answer] == []
    assert not registry


@pytest.mark.parametrize(
    ("decorator", "option"),
    [
        (kopf.on.create, "timeout"),
        (kopf.on.create, "backoff"),
        (kopf.on.startup, "timeout"),
        (kopf.timer, "interval"),
        (kopf.timer, "idle"),
        (kopf.daemon, "initial_delay"),
        (kopf.daemon, "cancellation_timeout"),
        (kopf.on.create, "retries"),
    ],
)
def test_all_kinds_of_numbers_are_numbers(decorator: Decorator, option: str) -> None:
    """Those of foreign types become floats, as there is no arithmetics of decimals with floats."""
    handlers = [declare(decorator, kopf.OperatorRegistry(), **{option: value}) for value in SECONDS]
    results = [getattr(handler, option) for handler in handlers]
    assert results == [float(value) for value in SECONDS]
    assert all(isinstance(result, int | float) for result in results)


def test_other_options_can_be_numbers_of_any_kind(registry: kopf.OperatorRegistry) -> None:
    value = decimal.Decimal("1.5")
    handler = declare(kopf.on.create, registry, param=value, field="spec.field", value=value)
    assert handler.param is value
    assert handler.value is value


def test_delays_can_be_functions(registry: kopf.OperatorRegistry) -> None:
    def delay(**_: Any) -> float:
        return 1

    assert declare(kopf.timer, registry, initial_delay=delay).initial_delay is delay


@pytest.mark.parametrize(("decorator", "option"), FLAGS)
def test_values_of_flags(decorator: Decorator, option: str) -> None:
    for value in (True, False, 0, 1, None):
        declare(decorator, kopf.OperatorRegistry(), **{option: value})


@pytest.mark.parametrize("value", [5, b"pods", {"pods": 1}, ("pods", "nodes")], ids=repr)
def test_resources_are_named_by_strings_or_functions(registry: kopf.OperatorRegistry, value: Any) -> None:
    with pytest.raises(kopf.DeclarationError, match="A resource is named by"):
        kopf.on.create(value, registry=registry)


@pytest.mark.parametrize("decorator", ALL)
def test_registries_are_registries(decorator: Any) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"registry= must be a kopf.OperatorRegistry"):
        decorator("pods", registry={}) if decorator in SELECTED else decorator(registry={})


@pytest.mark.parametrize("decorator", ALL)
def test_similar_options_are_suggested(registry: kopf.OperatorRegistry, decorator: Decorator) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"no such options: parm. Did you mean 'param'\?"):
        declare(decorator, registry, parm=1)


def test_options_of_subhandlers() -> None:
    async def execute(*_: Any, **__: Any) -> None: ...

    context = SubhandlingContext(make_changing_handler("parent"), make_changing_cause({}), execute)
    with executing(Body({}), context), pytest.raises(kopf.DeclarationError, match=r"timeout= must be a number"):
        kopf.register(do_nothing, timeout="1m")  # type: ignore[arg-type]


def test_the_place_and_the_given_value_are_told(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pathlib.Path(__file__).parent)
    with pytest.raises(kopf.DeclarationError) as e:
        kopf.timer("kopfexamples", interval="10s", registry=registry)  # type: ignore[arg-type]
    assert e.value.__traceback__ is not None
    line = e.value.__traceback__.tb_lineno
    assert str(e.value) == (
        f"test_options.py:{line}: interval= must be a number of seconds (0 or more), got '10s' (str)."
    )


def test_places_elsewhere_are_told_in_full(
    registry: kopf.OperatorRegistry, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kopf.DeclarationError) as e:
        kopf.on.startup(timeout="1m", registry=registry)  # type: ignore[arg-type]
    assert str(e.value).startswith(f"{__file__}:")


def test_intervals_of_other_types_have_an_advice(registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"\(timedelta\); use its .total_seconds\(\)"):
        declare(kopf.timer, registry, interval=datetime.timedelta(minutes=1))


def test_all_problems_of_the_options_are_told_at_once(registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(kopf.DeclarationError) as info:
        declare(kopf.on.update, registry, timeuot=5, retires=3, backoff="10s", errors="ignore", old=1)
    problems = info.value.problems
    assert all(problem.startswith(f"{pathlib.Path(__file__).relative_to(pathlib.Path.cwd())}:") for problem in problems)
    assert [problem.partition(": ")[2] for problem in problems] == [
        "This kind of handlers has no such options: retires, timeuot. Did you mean 'retries', 'timeout'?",
        "backoff= must be a number of seconds (0 or more), or kopf.exponential(...), got '10s' (str).",
        "errors= must be kopf.ErrorsMode.IGNORED, or .TEMPORARY, or .PERMANENT, got 'ignore' (str).",
        "The filters old=/new= need field= to know what to check.",
    ]
    assert str(info.value) == "\n".join(problems)


@pytest.mark.parametrize(
    ("decorator", "options", "texts"),
    [
        (kopf.on.resume, {"retries": "3", "deleted": "no"}, ["retries= must be", "deleted= must be True or False"]),
        (kopf.on.delete, {"retries": "3", "optional": "no"}, ["retries= must be", "optional= must be True or False"]),
        (kopf.on.field, {"field": "", "old": 1, "retries": "3"}, ["retries= must", "The filters", "field is not s"]),
        (
            kopf.on.validate,
            {"operations": ["MAKE"], "operation": "CREATE", "subresource": "", "persistent": "no"},
            [
                "persistent= must be",
                "Either operation= or",
                "No such operations: MAKE",
                "The subresource cannot be empty",
            ],
        ),
    ],
)
def test_all_problems_of_one_kind_of_handlers_are_told_at_once(
    registry: kopf.OperatorRegistry, decorator: Decorator, options: dict[str, Any], texts: list[str]
) -> None:
    with pytest.raises(kopf.DeclarationError) as info:
        declare(decorator, registry, **options)
    assert len(info.value.problems) == len(texts)
    for problem, text in zip(info.value.problems, texts, strict=True):
        assert text in problem
