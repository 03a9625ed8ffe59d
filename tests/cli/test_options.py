from __future__ import annotations

import logging
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from kopf._logging.configuration import LogFormat
from kopf._values import codec
from kopf.cli import CLIControls, LogFormatParamType, logging_options, main
from kopf.cli.options import run_to_end

DOCS = "\n".join(path.read_text() for path in (pathlib.Path(__file__).parent.parent.parent / "docs").glob("*.md"))


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, "asyncio", "aiohttp")]
    levels = [logger.level for logger in loggers]
    handlers = loggers[0].handlers[:]
    yield
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@click.command(context_settings={"auto_envvar_prefix": "SAY"})
@logging_options
def say() -> None:
    logging.getLogger("kopf.objects").debug("debug", extra={"k8s_ref": {"name": "x"}})
    logging.getLogger("kopf.objects").info("info", extra={"k8s_ref": {"name": "x"}})
    logging.getLogger("kopf.objects").warning("warning", extra={"k8s_ref": {"name": "x"}})


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--log-format=plain"], "[x] info\n[x] warning\n"),
        (["--log-format=plain", "--no-log-prefix"], "info\nwarning\n"),
        (["--log-format=plain", "-q"], "[x] warning\n"),
        (["--log-format=plain", "-v"], "[x] debug\n[x] info\n[x] warning\n"),
        (["--log-format=plain", "--debug"], "[x] debug\n[x] info\n[x] warning\n"),
    ],
)
def test_logging_options(args: list[str], expected: str) -> None:
    result = CliRunner().invoke(say, args)
    assert result.exit_code == 0
    assert result.stderr == expected


def test_full_format_with_prefixes_is_the_default() -> None:
    result = CliRunner().invoke(say, [])
    assert "] kopf.objects         [INFO    ] [x] info\n" in result.stderr


def test_json_format() -> None:
    result = CliRunner().invoke(say, ["--log-format=json", "--log-refkey=ref"])
    assert '"message": "info"' in result.stderr
    assert '"ref": {"name": "x"}' in result.stderr


def test_environment_variables() -> None:
    env = {"SAY_LOG_FORMAT": "plain", "SAY_QUIET": "true", "SAY_LOG_PREFIX": "false"}
    assert CliRunner().invoke(say, [], env=env).stderr == "warning\n"


@pytest.mark.parametrize("value", ["json", LogFormat.JSON])
def test_values_of_the_format(value: str | LogFormat) -> None:
    assert LogFormatParamType().convert(value, None, None) is LogFormat.JSON


@pytest.mark.parametrize("command", [[], *([name] for name in main.list_commands(click.Context(main)))])
def test_help(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(['kopf', *command])} [OPTIONS]")
    assert [line for line in result.stdout.splitlines() if len(line) > 80 or re.search(r"\d{12}", line)] == []


@pytest.mark.parametrize("name", ["run", "freeze", "resume", "release", "replay", "shards", "dev", "cluster"])
def test_every_option_is_documented(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    params = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert params
    names = {name for param in params for name in [*param.opts, *param.secondary_opts] if name.startswith("--")}
    assert {option for option in names if option not in DOCS} == set()


def test_run_as_a_module() -> None:
    result = subprocess.run([sys.executable, "-m", "kopf", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("kopf, version ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("%(levelname)s|%(message)s", "INFO|[x] info\nWARNING|[x] warning\n"),
        ("PLAIN", "[x] info\n[x] warning\n"),
    ],
)
def test_format_strings(value: str, expected: str) -> None:
    assert CliRunner().invoke(say, ["--log-format", value]).stderr == expected


def test_unreadable_answers_are_errors_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    async def read() -> None:
        codec.decode_answer(b"<html>")

    with pytest.raises(SystemExit, match="2"):
        run_to_end(CLIControls(), read(), exit_code=2)
    assert capsys.readouterr().err.startswith("Error: JSON is malformed")
