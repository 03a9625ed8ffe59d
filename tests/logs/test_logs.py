from __future__ import annotations

import json
import logging
import logging.config
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kopf._logging import tracebacks
from kopf._logging.configuration import ConsoleHandler, LogFormat, configure, make_formatter, revive_loggers
from kopf._logging.loggers import LocalObjectLogger, ObjectLogger
from kopf._settings.settings import OperatorSettings
from kopf._values.bodies import Body

BODY = Body(
    {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "name1", "namespace": "ns1", "uid": "uid1"},
    }
)
CLUSTER_BODY = Body({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "name1", "uid": "uid1"}})
REF = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "name": "name1", "namespace": "ns1", "uid": "uid1"}


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    root = logging.getLogger()
    loggers = [root, logging.getLogger("asyncio"), logging.getLogger("aiohttp")]
    levels = [logger.level for logger in loggers]
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def settings() -> OperatorSettings:
    return OperatorSettings()


@pytest.fixture
def logger(settings: OperatorSettings) -> ObjectLogger:
    return ObjectLogger(body=BODY, settings=settings)


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capsys.readouterr().err.splitlines()


class UntouchableMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise AssertionError("must not be accessed")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("must not be accessed")

    def __len__(self) -> int:
        raise AssertionError("must not be accessed")


def test_format_values_are_the_format_strings() -> None:
    assert {item.name: item.value for item in LogFormat} == {
        "PLAIN": "%(message)s",
        "FULL": "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s",
        "JSON": "-json-",
    }


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        ({}, ["info", "warning"]),
        ({"quiet": True}, ["warning"]),
        ({"verbose": True}, ["debug", "info", "warning"]),
        ({"debug": True}, ["debug", "info", "warning"]),
        ({"debug": True, "quiet": True}, ["debug", "info", "warning"]),
    ],
)
def test_levels(
    flags: Mapping[str, Any],
    levels: list[str],
    logger: ObjectLogger,
    output: Callable[[], list[str]],
) -> None:
    configure(**flags, log_format=LogFormat.PLAIN)
    logger.debug("debug")
    logger.info("info")
    logger.warning("warning")
    assert output() == levels


def test_internals_are_hidden_unless_debugging_but_their_errors_are_not(output: Callable[[], list[str]]) -> None:
    def log() -> list[str]:
        for name in ("asyncio", "aiohttp.access", "some.lib"):
            logging.getLogger(name).info(name)
            logging.getLogger(name).error("%s error", name)
        return output()

    errors = ["asyncio error", "aiohttp.access error", "some.lib", "some.lib error"]
    configure(verbose=True, log_format=LogFormat.PLAIN)
    assert log() == errors
    configure(debug=True, log_format=LogFormat.PLAIN)
    assert log() == ["asyncio", "asyncio error", "aiohttp.access", "aiohttp.access error", "some.lib", "some.lib error"]
    configure(log_format=LogFormat.PLAIN)
    assert log() == errors


def test_full_format(logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(log_format=LogFormat.FULL, log_prefix=True)
    logger.info("hello %s", "world")
    logging.getLogger("a.very.long.name.of.a.logger").warning("hi")
    first, second = output()
    assert first.startswith("[20")
    assert first.endswith("] kopf.objects         [INFO    ] [ns1/name1] hello world")
    assert second.endswith("] a.very.long.name.of. [WARNING ] hi")


@pytest.mark.parametrize(("log_prefix", "expected"), [(True, True), (None, True), (False, False)])
def test_prefixes_in_text_formats(
    log_prefix: bool | None,
    expected: bool,
    settings: OperatorSettings,
    logger: ObjectLogger,
    output: Callable[[], list[str]],
) -> None:
    configure(log_format=LogFormat.PLAIN, log_prefix=log_prefix)
    logger.info("hello")
    ObjectLogger(body=CLUSTER_BODY, settings=settings).info("hello")
    ObjectLogger(body=Body({}), settings=settings).info("hello")
    assert output() == (["[ns1/name1] hello", "[name1] hello", "hello"] if expected else ["hello"] * 3)


def test_json_format(logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(log_format=LogFormat.JSON, log_prefix=None)
    logger.info("hello %s", "world", extra={"mine": 123})
    logging.getLogger().warning("no object")
    first, second = map(json.loads, output())
    assert first.pop("timestamp").endswith("+00:00")
    assert first == {"message": "hello world", "severity": "info", "object": REF, "mine": 123}
    assert second.keys() == {"message", "severity", "timestamp"}


def test_json_format_with_prefix_and_key(logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(log_format=LogFormat.JSON, log_prefix=True, log_refkey="k8s-obj")
    logger.info("hello")
    [line] = map(json.loads, output())
    assert line["message"] == "[ns1/name1] hello"
    assert line["k8s-obj"] == REF
    assert "object" not in line


@pytest.mark.parametrize(
    ("level", "severity"),
    [
        (logging.DEBUG, "debug"),
        (logging.INFO, "info"),
        (logging.WARNING, "warn"),
        (logging.ERROR, "error"),
        (logging.CRITICAL, "fatal"),
        (logging.INFO - 1, "info"),
    ],
)
def test_json_severities(level: int, severity: str, logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(debug=True, log_format=LogFormat.JSON)
    logger.log(level, "hello")
    assert json.loads(output()[0])["severity"] == severity


def test_exceptions_are_in_all_formats(logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    for log_format in LogFormat:
        configure(log_format=log_format)
        try:
            raise ValueError("boom")
        except ValueError:
            logger.exception("failed")
        lines = output()
        assert "ValueError: boom" in "\n".join(lines)
        if log_format is LogFormat.JSON:
            assert "ValueError: boom" in json.loads(lines[0])["exc_info"]


def test_formatting_does_not_affect_other_handlers(logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(log_format=LogFormat.PLAIN, log_prefix=True)
    other = logging.StreamHandler(sys.stderr)
    other.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger().addHandler(other)
    logger.info("hello")
    assert output() == ["[ns1/name1] hello", "hello"]


def test_reconfiguring_replaces_own_handler_only() -> None:
    root = logging.getLogger()
    other = logging.NullHandler()
    root.addHandler(other)
    configure()
    configure()
    assert other in root.handlers
    assert len([handler for handler in root.handlers if isinstance(handler, ConsoleHandler)]) == 1


def test_output_follows_the_standard_error_stream(
    logger: ObjectLogger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(log_format=LogFormat.PLAIN)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", sys.stdout)
        logger.info("to stdout")
    logger.info("to stderr")
    assert capsys.readouterr() == ("to stdout\n", "to stderr\n")


def test_records_carry_what_the_event_posting_needs(
    settings: OperatorSettings,
    logger: ObjectLogger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    logger.info("first", extra={"mine": 123})
    logger.info("second")
    LocalObjectLogger(body=BODY, settings=settings).info("third")
    first, second, third = [record.__dict__ for record in caplog.records]
    for record in (first, second, third):
        assert record["name"] == "kopf.objects"
        assert record["k8s_ref"] == REF
        assert record["settings"] is settings
    assert [record["k8s_skip"] for record in (first, second, third)] == [False, False, True]
    assert first["mine"] == 123
    assert "mine" not in second
    assert first["k8s_ref"] is second["k8s_ref"]


def test_loggers_do_not_look_into_the_body_until_they_log(settings: OperatorSettings) -> None:
    configure(quiet=True)
    logger = ObjectLogger(body=UntouchableMapping(), settings=settings)
    logger.debug("disabled")
    logger.info("disabled")
    with pytest.raises(AssertionError, match="must not be accessed"):
        logger.error("enabled")


def test_the_place_of_the_call_is_that_of_the_caller(logger: ObjectLogger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logger.debug("one")
    logger.info("two")
    assert {record.filename for record in caplog.records} == {"test_logs.py"}


def test_formatters_for_own_handlers() -> None:
    record = logging.LogRecord("x", logging.INFO, "path", 1, "msg", None, None)
    record.k8s_ref = REF
    assert make_formatter(log_format=LogFormat.PLAIN).format(record) == "[ns1/name1] msg"
    assert json.loads(make_formatter(log_format=LogFormat.JSON).format(record))["message"] == "msg"


def log_failure(logger: ObjectLogger) -> None:
    """As if a handler of the users is called by the framework, and the framework logs its error."""
    source = "def call(fn):\n    return fn()\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, tracebacks.__file__, "exec"), namespace)

    def users_fn() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as info:
        namespace["call"](users_fn)
    logger.error("failed", exc_info=(info.type, info.value, info.tb.tb_next))


@pytest.mark.parametrize("log_format", [LogFormat.PLAIN, LogFormat.JSON])
def test_tracebacks_begin_from_the_users_code_unless_debugging(
    log_format: LogFormat,
    logger: ObjectLogger,
    output: Callable[[], list[str]],
) -> None:
    def log() -> str:
        log_failure(logger)
        text = "\n".join(output())
        return str(json.loads(text)["exc_info"]) if log_format is LogFormat.JSON else text

    configure(log_format=log_format, debug=True)
    assert "in call" in log()
    configure(log_format=log_format)
    text = log()
    assert "in call" not in text
    assert "in users_fn" in text
    assert text.endswith("ValueError: boom")


def test_trimmed_tracebacks_do_not_affect_other_handlers(logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(log_format="ours: %(message)s")
    other = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(other)
    logging.getLogger().handlers.reverse()
    for _ in range(2):
        logging.getLogger().handlers.reverse()
        log_failure(logger)
        text = "\n".join(output())
        assert text.count("in call") == 1
        assert text.count("ValueError: boom") == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain", "[ns1/name1] hello"),
        ("PLAIN", "[ns1/name1] hello"),
        ("%(levelname)s: %(message)s!", "INFO: [ns1/name1] hello!"),
    ],
)
def test_formats_by_name(name: str, expected: str, logger: ObjectLogger, output: Callable[[], list[str]]) -> None:
    configure(log_format=name, log_prefix=True)
    logger.info("hello")
    assert output() == [expected]


def test_wrong_format_strings() -> None:
    with pytest.raises(ValueError, match="format"):
        make_formatter(log_format="%(message")


def test_loggers_disabled_by_others_are_revived() -> None:
    loggers = [item for item in logging.root.manager.loggerDict.values() if isinstance(item, logging.Logger)]
    states = [item.disabled for item in loggers]
    ours, theirs = logging.getLogger("kopf.objects"), logging.getLogger("theirs")
    try:
        logging.config.dictConfig({"version": 1})  # by default, it disables all that exist
        assert (ours.disabled, theirs.disabled) == (True, True)
        revive_loggers()
        assert (ours.disabled, theirs.disabled) == (False, True)
    finally:
        for item, state in zip(loggers, states, strict=True):
            item.disabled = state


def test_loggers_disabled_on_purpose_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kopf.objects", "kopf.activities.authentication", "kopf._core.engines.activities"):
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    revive_loggers()
    for name in ("kopf.objects", "kopf.activities.authentication", "kopf._core.engines.activities"):
        assert logging.getLogger(name).disabled


# ------------------------------------------------------------------ forged lines


@pytest.mark.parametrize(
    "text",
    [
        "a\n[2026-01-01 00:00:00,000] kopf.objects [INFO    ] forged",
        "a\r\nforged",
        "\x1b[2J\x1b[Hforged",
        "a\x00b",
        "a\x85b",
        "a\u2028b\u2029c",
        "a\u202eb",
        "a\u200fb\u061cc\u200ed",
        "a\x9b2Jb",
        "\ud800",
    ],
)
@pytest.mark.parametrize("fmt", [LogFormat.PLAIN, LogFormat.FULL, LogFormat.JSON, "%(message)s"])
def test_texts_of_others_do_not_forge_lines(text: str, fmt: LogFormat | str) -> None:
    formatter = make_formatter(log_format=fmt)
    record = logging.LogRecord("kopf.objects", logging.INFO, __file__, 1, "said: %s", (text,), None)
    record.k8s_ref = {"name": text, "namespace": text}
    line = formatter.format(record)
    assert len(line.splitlines()) == 1
    assert all(char.isprintable() for char in line)
    assert line.encode()


@pytest.mark.parametrize("trimming", [True, False])
def test_errors_in_tracebacks_do_not_forge_lines(trimming: bool) -> None:
    def fail(text: str) -> None:
        error = ExceptionGroup(text, [ValueError(text), SyntaxError(text)])
        error.add_note(text)
        raise error

    def fail_again(text: str) -> None:
        try:
            fail(text)
        except ExceptionGroup as e:
            raise KeyError(text) from e

    formatter = make_formatter(log_format=LogFormat.PLAIN, full_tracebacks=not trimming)
    try:
        fail_again("said\nforged\r\nforged")
    except KeyError:
        exc_info = sys.exc_info()
        record = logging.LogRecord("kopf.objects", logging.INFO, __file__, 1, "text", (), exc_info)
    text = formatter.format(record)
    assert text.count("forged") >= 8
    assert not [line for line in text.splitlines() if line.startswith(("forged", "said"))]
    assert "ExceptionGroup: said\n" in text


def test_tracebacks_are_of_several_lines_and_printable() -> None:
    formatter = make_formatter(log_format=LogFormat.FULL)
    try:
        raise ValueError("\x1b[2Jforged\r")
    except ValueError:
        record = logging.LogRecord("x", logging.INFO, __file__, 1, "text", (), sys.exc_info())
    lines = formatter.format(record).split("\n")
    assert len(lines) > 2
    assert all(line.isprintable() for line in lines)
