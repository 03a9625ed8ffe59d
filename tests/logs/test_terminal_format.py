from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from kopf._logging.configuration import ConsoleHandler, LogFormat, configure, configure_for_terminal
from kopf._logging.log_levels import get_guiding_level, get_internal_level, is_human, set_reader
from kopf._logging.terminal_format import TerminalFormatter, has_colours, is_for_people


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, ConsoleHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
    set_reader(is_human=False)


def make_record(
    text: str,
    *,
    name: str = "kopf.objects",
    level: int = logging.INFO,
    obj: str = "",
) -> logging.LogRecord:
    record = logging.LogRecord(name, level, "", 0, text, None, None)
    if obj:
        namespace, _, own = obj.rpartition("/")
        record.k8s_ref = {"namespace": namespace, "name": own} if namespace else {"name": own}
    return record


@pytest.fixture
def formatter() -> TerminalFormatter:
    return TerminalFormatter(colours=False)


def cut(line: str) -> str:
    match = re.match(r"\d\d:\d\d:\d\d ", line)
    assert match is not None, line
    return line[match.end() :]


def test_names_are_aligned_by_the_longest_one_up_to_a_limit(formatter: TerminalFormatter) -> None:
    lines = [
        cut(formatter.format(make_record("text", obj=name)))
        for name in ("ns/long-name", "short", f"ns/{'x' * 60}", "short")
    ]
    assert lines == [
        "INFO  ns/long-name  text",
        "INFO  short         text",
        f"INFO  ns/{'x' * 60}  text",
        f"INFO  {'short':40}  text",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kopf.objects", "INFO  text"),
        ("kopf.activities.startup", "INFO  text"),
        ("root", "INFO  text"),
        ("aiohttp.access", "INFO  access: text"),
        ("kopfish", "INFO  kopfish: text"),
    ],
)
def test_only_other_loggers_are_named(formatter: TerminalFormatter, name: str, expected: str) -> None:
    assert cut(formatter.format(make_record("text", name=name))) == expected


@pytest.mark.parametrize(
    ("level", "tag"),
    [
        (logging.DEBUG, "DEBUG"),
        (logging.INFO, "INFO "),
        (logging.WARNING, "WARN "),
        (logging.ERROR, "ERROR"),
        (logging.CRITICAL, "FATAL"),
        (25, "Level"),
    ],
)
def test_levels(formatter: TerminalFormatter, level: int, tag: str) -> None:
    assert cut(formatter.format(make_record("text", level=level))) == f"{tag} text"
    assert "\x1b[" in TerminalFormatter(colours=True).format(make_record("text", level=level))


def test_nobody_else_controls_the_terminal() -> None:
    record = make_record("a\x1b[2Jb\nc", name="some.\x1b[31m", obj="n\x1b[31ms/na\nme")
    for colours in (False, True):
        line = TerminalFormatter(colours=colours).format(record)
        assert r"a\x1b[2Jb\nc" in line
        assert r"n\x1b[31ms/na\nme" in line
        assert "\n" not in line


def test_names_can_be_omitted() -> None:
    formatter = TerminalFormatter(colours=False, prefix=False)
    assert cut(formatter.format(make_record("text", obj="ns/name"))) == "INFO  text"


@pytest.mark.parametrize(
    ("env", "stream", "expected"),
    [
        ({}, Terminal(), (True, True)),
        ({}, io.StringIO(), (False, False)),
        ({"NO_COLOR": "1"}, Terminal(), (True, False)),
        ({"FORCE_COLOR": "1"}, io.StringIO(), (True, True)),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, io.StringIO(), (False, False)),
        ({"FORCE_COLOR": "", "NO_COLOR": ""}, Terminal(), (True, True)),
        ({"TERM": "dumb"}, Terminal(), (True, False)),
    ],
)
def test_who_reads_it(
    env: dict[str, str],
    stream: io.StringIO,
    expected: tuple[bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert (is_for_people(stream), has_colours(stream)) == expected


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_the_audience(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    configure_for_terminal()
    assert is_human() is stream.isatty()
    people, machines = (logging.INFO, logging.DEBUG), (logging.DEBUG, logging.INFO)
    assert (get_guiding_level(), get_internal_level()) == (people if stream.isatty() else machines)
    logging.getLogger("kopf.objects").info("text")
    assert re.fullmatch(r"\S+ \S+INFO \S+ text\n" if stream.isatty() else r"\[20.*\] text\n", stream.getvalue())
    configure(log_format=LogFormat.FULL)
    assert not is_human()
