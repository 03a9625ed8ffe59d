"""The options of the decorators: what is wrong with them is said at once, and where."""
from __future__ import annotations

import datetime
import decimal
import fractions
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
    kopf.on.event, kopf.on.validate, kopf.on.mutate, kopf.index, kopf.daemon, kopf.timer, *CHANGES,
]
ALL: list[Decorator] = [*ACTIVITIES, *SELECTED]

WRONG_SECONDS = ["10s", "10", -1, -0.1, math.nan, [1], datetime.timedelta(seconds=1), decimal.Decimal(-1), 1j]
SECONDS = [0, 1, 1.5, True, math.inf, decimal.Decimal("1.5"), fractions.Fraction(3, 2)]


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


def declare(decorator: Decorator, registry: kopf.OperatorRegistry, **options: Any) -> Any:
    names = ["kopfexamples"] if decorator in SELECTED else []
    if decorator is kopf.on.field:
        options = {"field": "spec", **options}
    decorator(*names, registry=registry, **options)(do_nothing)
    handlers: list[Any] = [*registry.activities, *registry.resources, *registry.webhooks]
    assert len(handlers) == 1
    return handlers[0]


@pytest.mark.parametrize("decorator", RETRIED)
@pytest.mark.parametrize("option", ["timeout", "backoff"])
@pytest.mark.parametrize("value", WRONG_SECONDS, ids=repr)
def test_seconds_that_are_not(
    registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: object
) -> None:
    with pytest.raises(kopf.DeclarationError, match=rf"{option}= must be a number of seconds \(0 or more\), got "):
        declare(decorator, registry, **{option: value})


@pytest.mark.parametrize(("decorator", "option"), [
    (kopf.timer, "interval"),
    (kopf.timer, "idle"),
    (kopf.timer, "initial_delay"),
    (kopf.daemon, "initial_delay"),
    (kopf.daemon, "cancellation_backoff"),
    (kopf.daemon, "cancellation_timeout"),
    (kopf.daemon, "cancellation_polling"),
])
@pytest.mark.parametrize("value", WRONG_SECONDS, ids=repr)
def test_seconds_of_the_background_that_are_not(
    registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: object
) -> None:
    with pytest.raises(kopf.DeclarationError, match=rf"{option}= must be a number of seconds"):
        declare(decorator, registry, **{option: value})


@pytest.mark.parametrize(("decorator", "option"), [
    (kopf.on.create, "timeout"),
    (kopf.on.create, "backoff"),
    (kopf.on.startup, "timeout"),
    (kopf.timer, "interval"),
    (kopf.timer, "idle"),
    (kopf.daemon, "initial_delay"),
    (kopf.daemon, "cancellation_timeout"),
    (kopf.on.create, "retries"),
])
@pytest.mark.parametrize("value", SECONDS, ids=repr)
def test_all_kinds_of_numbers_are_numbers(
    registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: Any
) -> None:
    """Those of foreign types become floats, as there is no arithmetics of decimals with floats."""
    result = getattr(declare(decorator, registry, **{option: value}), option)
    assert result == float(value)
    assert isinstance(result, int | float)


def test_other_options_can_be_numbers_of_any_kind(registry: kopf.OperatorRegistry) -> None:
    value = decimal.Decimal("1.5")
    handler = declare(kopf.on.create, registry, param=value, field="spec.field", value=value)
    assert handler.param is value
    assert handler.value is value


def test_delays_can_be_functions(registry: kopf.OperatorRegistry) -> None:
    def delay(**_: Any) -> float:
        return 1

    assert declare(kopf.timer, registry, initial_delay=delay).initial_delay is delay


@pytest.mark.parametrize("decorator", ALL)
@pytest.mark.parametrize("value", [5, b"fn", ["fn"]])
def test_ids_are_strings(registry: kopf.OperatorRegistry, decorator: Decorator, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"id= must be a string, got "):
        declare(decorator, registry, id=value)


@pytest.mark.parametrize("decorator", RETRIED)
@pytest.mark.parametrize("value", ["3", -1, [3], None.__class__])
def test_retries_are_numbers(registry: kopf.OperatorRegistry, decorator: Decorator, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"retries= must be a number of attempts"):
        declare(decorator, registry, retries=value)


@pytest.mark.parametrize("decorator", RETRIED)
@pytest.mark.parametrize("value", ["permanent", "PERMANENT", 3, Exception])
def test_modes_of_errors(registry: kopf.OperatorRegistry, decorator: Decorator, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"errors= must be kopf.ErrorsMode.IGNORED, or"):
        declare(decorator, registry, errors=value)


FLAGS: list[tuple[Decorator, str]] = [
    (kopf.on.resume, "deleted"), (kopf.on.delete, "optional"), (kopf.daemon, "optional"), (kopf.timer, "optional"),
    (kopf.timer, "sharp"), *((decorator, option) for decorator in (kopf.on.validate, kopf.on.mutate)
                             for option in ("persistent", "side_effects", "ignore_failures")),
]


@pytest.mark.parametrize(("decorator", "option"), FLAGS)
@pytest.mark.parametrize("value", ["no", "false", "", 2, [True]])
def test_flags_are_booleans(registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=rf"{option}= must be True or False, got "):
        declare(decorator, registry, **{option: value})


@pytest.mark.parametrize(("decorator", "option"), FLAGS)
@pytest.mark.parametrize("value", [True, False, 0, 1, None])
def test_values_of_flags(registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: object) -> None:
    declare(decorator, registry, **{option: value})


@pytest.mark.parametrize("decorator", SELECTED)
@pytest.mark.parametrize("option", ["labels", "annotations"])
@pytest.mark.parametrize("value", ["x", {"x"}, ["x"], {"x": None}, {"x": 5}, {"x": True}, {5: "x"}], ids=repr)
def test_filters_of_metadata(registry: kopf.OperatorRegistry, decorator: Decorator, option: str, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=f"{option}= must be a dict"):
        declare(decorator, registry, **{option: value})


@pytest.mark.parametrize("decorator", SELECTED)
@pytest.mark.parametrize("value", ["x", True, {}], ids=repr)
def test_callbacks_are_functions(registry: kopf.OperatorRegistry, decorator: Decorator, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"when= must be a function"):
        declare(decorator, registry, when=value)


@pytest.mark.parametrize("decorator", SELECTED)
@pytest.mark.parametrize("value", [5, {"spec"}, ["spec", 5], b"spec"], ids=repr)
def test_fields_are_paths(registry: kopf.OperatorRegistry, decorator: Decorator, value: object) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"field= must be a dotted string"):
        declare(decorator, registry, field=value)


@pytest.mark.parametrize("name", ["group", "version", "kind", "plural", "singular", "shortcut", "category"])
def test_names_of_resources_are_strings(registry: kopf.OperatorRegistry, name: str) -> None:
    options: Any = {name: 5}
    with pytest.raises(kopf.DeclarationError, match=f"{name}= must be a string"):
        kopf.on.create("kopfexamples", registry=registry, **options)


@pytest.mark.parametrize("value", [5, b"pods", {"pods": 1}, ("pods", "nodes")], ids=repr)
def test_resources_are_named_by_strings_or_functions(registry: kopf.OperatorRegistry, value: Any) -> None:
    with pytest.raises(kopf.DeclarationError, match="A resource is named by"):
        kopf.on.create(value, registry=registry)


@pytest.mark.parametrize("decorator", ALL)
def test_registries_are_registries(decorator: Any) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"registry= must be a kopf.OperatorRegistry"):
        decorator("pods", registry={}) if decorator in SELECTED else decorator(registry={})


def test_subresources_and_operations(registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"subresource= must be a string"):
        declare(kopf.on.validate, registry, subresource=True)
    with pytest.raises(kopf.DeclarationError, match=r"operations= must be a collection"):
        declare(kopf.on.validate, registry, operations=5)


@pytest.mark.parametrize("decorator", ALL)
def test_similar_options_are_suggested(registry: kopf.OperatorRegistry, decorator: Decorator) -> None:
    with pytest.raises(kopf.DeclarationError, match=r"no such options: parm. Did you mean 'param'\?"):
        declare(decorator, registry, parm=1)


def test_options_of_subhandlers() -> None:
    async def execute(*_: Any, **__: Any) -> None: ...

    context = SubhandlingContext(make_changing_handler("parent"), make_changing_cause({}), execute)
    with executing(Body({}), context), pytest.raises(kopf.DeclarationError, match=r"timeout= must be a number"):
        kopf.register(do_nothing, timeout="1m")  # type: ignore[arg-type]


@pytest.mark.parametrize("decorator", ALL)
def test_nothing_is_registered_if_it_is_refused(registry: kopf.OperatorRegistry, decorator: Decorator) -> None:
    with pytest.raises(kopf.DeclarationError):
        declare(decorator, registry, id=5)
    assert not registry


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
        "backoff= must be a number of seconds (0 or more), got '10s' (str).",
        "errors= must be kopf.ErrorsMode.IGNORED, or .TEMPORARY, or .PERMANENT, got 'ignore' (str).",
        "The filters old=/new= need field= to know what to check.",
    ]
    assert str(info.value) == "\n".join(problems)


@pytest.mark.parametrize(("decorator", "options", "texts"), [
    (kopf.on.resume, {"deleted": "no", "retries": "3"}, ["retries= must be", "deleted= must be True or False"]),
    (kopf.on.delete, {"optional": "no", "retries": "3"}, ["retries= must be", "optional= must be True or False"]),
    (kopf.on.field, {"field": "", "old": 1, "retries": "3"}, ["retries= must", "The filters", "field is not s"]),
    (kopf.on.validate, {"operations": ["MAKE"], "operation": "CREATE", "subresource": "", "persistent": "no"}, [
        "persistent= must be", "Either operation= or", "No such operations: MAKE", "The subresource cannot be empty",
    ]),
])
def test_all_problems_of_one_kind_of_handlers_are_told_at_once(
    registry: kopf.OperatorRegistry, decorator: Decorator, options: dict[str, Any], texts: list[str]
) -> None:
    with pytest.raises(kopf.DeclarationError) as info:
        declare(decorator, registry, **options)
    assert len(info.value.problems) == len(texts)
    for problem, text in zip(info.value.problems, texts, strict=True):
        assert text in problem
