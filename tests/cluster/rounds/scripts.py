"""
Scripts of ``kubectl`` and ``helm``: ordered steps, each one command with what it must print and how it must end.

A step is declared by what it is good for: `run` for success with some texts in the output, `tell` for these in this
order, `same` for an exact output, `fail` for a refusal, `eventually` for what takes some time to be so, `start` and
`see` for commands that go on in the background. Commands are written as in a shell, with optional variables before the
arguments, but without the tool itself and with no shell involved. Their inputs are written in YAML, and passed in JSON.

A script goes on after a failed step, and reports all the failed ones in the end, with their commands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import yaml

from tests.patience import PATIENCE

#: Since 1.34, ``kubectl delete`` names the namespaces of what it deletes.
_DELETED_FROM = re.compile(r" deleted from \S+ namespace")

Expected: TypeAlias = str | re.Pattern[str]


@dataclasses.dataclass(frozen=True)
class Step:
    """One command; see the module for the meanings."""

    action: Literal["run", "tell", "same", "fail", "eventually", "start", "see"]
    command: str
    expected: tuple[Expected, ...]
    stdin: str | None = None
    absent: tuple[str, ...] = ()
    code: int = 0


def run(command: str, *expected: Expected, stdin: str | None = None, absent: Sequence[str] = ()) -> Step:
    """The command succeeds; all the texts are somewhere in its outputs, and the absent ones are not."""
    return Step("run", command, expected, stdin, tuple(absent))


def tell(command: str, *expected: Expected) -> Step:
    """The command succeeds; all the texts are in its output in this order."""
    return Step("tell", command, expected)


def same(command: str, output: str, stdin: str | None = None) -> Step:
    """The command succeeds and prints exactly this, with any spaces around and columns of any width."""
    return Step("same", command, (output,), stdin)


def fail(
    command: str,
    *expected: Expected,
    code: int = 1,
    stdin: str | None = None,
    absent: Sequence[str] = (),
) -> Step:
    """The command exits with the code, and tells all of that, and nothing of the absent."""
    return Step("fail", command, expected, stdin, tuple(absent), code)


def eventually(command: str, output: str) -> Step:
    """The same as `same`, but sooner or later."""
    return Step("eventually", command, (output,))


def start(command: str, *expected: Expected) -> Step:
    """The command is started in the background, and has printed all of that in the beginning."""
    return Step("start", command, expected)


def see(command: str, *expected: Expected) -> Step:
    """The command in the background has printed all of that in this order, or does so soon; it is ended then."""
    return Step("see", command, expected)


class StepError(AssertionError):
    """A step has not gone as expected."""


class Console:
    """Executes the steps of one tool with one configuration, in one directory."""

    def __init__(self, tool: str, kubeconfig: pathlib.Path, directory: pathlib.Path) -> None:
        self._tool = tool
        self._directory = directory
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(directory / ".cache"),
            "NO_COLOR": "1",
            "GOGC": "off",
        }  # collecting the garbage takes a fifth of what such short processes take
        self._background: dict[str, tuple[subprocess.Popen[bytes], pathlib.Path]] = {}

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """End everything that is still running when the context ends."""
        try:
            yield
        finally:
            for command in list(self._background):
                self._end(command)

    def execute(self, steps: Sequence[Step]) -> None:
        """Execute all the steps, and raise an error that describes those that have failed, if there are any."""
        failures: list[str] = []
        with self.session():
            for number, step in enumerate(steps, start=1):
                try:
                    self._execute(step)
                except StepError as error:
                    failures.append(f"step {number}: {step.command}\n{error}")
        if failures:
            raise AssertionError(f"{len(failures)} of {len(steps)} steps have failed:\n\n" + "\n\n".join(failures))

    def _execute(self, step: Step) -> None:
        match step.action:
            case "run":
                stdout, stderr = self._call(step)
                _check_contents(stdout + stderr, step)
            case "tell":
                _check_order(self._call(step)[0], step)
            case "same":
                _check_same(self._call(step)[0], step)
            case "fail":
                stdout, stderr = self._call(step)
                _check_contents(stdout + stderr, step)
            case "eventually":
                self._wait_for_output(step)
            case "start":
                self._start(step)
            case "see":
                self._see(step)

    def _call(self, step: Step) -> tuple[str, str]:
        args, env = self._parse(step.command)
        data = None if step.stdin is None else json.dumps(yaml.safe_load(step.stdin))
        try:
            done = subprocess.run(
                args,
                env=env,
                cwd=self._directory,
                text=True,
                capture_output=True,
                input=data,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StepError(f"it hangs; so far: {error.stdout!r} {error.stderr!r}") from None
        if done.returncode != step.code:
            raise StepError(f"exit code {done.returncode} instead of {step.code}:\n{done.stdout}{done.stderr}")
        return done.stdout, done.stderr

    def _parse(self, command: str) -> tuple[list[str], dict[str, str]]:
        words = shlex.split(command)
        env = dict(self._env)
        while words and (match := re.match(r"([A-Z_]+)=", words[0])):
            env[match[1]] = words.pop(0)[match.end() :]
        return [self._tool, *words], env

    def _wait_for_output(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return _check_same(self._call(step)[0], step)
            except StepError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _start(self, step: Step) -> None:
        args, env = self._parse(step.command)
        path = self._directory / f"background-{len(self._background)}.log"
        with path.open("wb") as file:
            process = subprocess.Popen(
                args, env=env, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        self._background[step.command] = process, path
        self._wait_for_contents(step, path)

    def _see(self, step: Step) -> None:
        if step.command not in self._background:
            raise StepError("it was not started")
        try:
            self._wait_for_contents(step, self._background[step.command][1])
        finally:
            self._end(step.command)

    def _end(self, command: str) -> None:
        process, path = self._background.pop(command)
        process.kill()
        process.wait()
        path.unlink()

    @staticmethod
    def _wait_for_contents(step: Step, path: pathlib.Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return _check_order(path.read_text(), step)
            except StepError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)


def _check_contents(output: str, step: Step) -> None:
    for expected in step.expected:
        if not _find(expected, output):
            raise StepError(f"there is no {_show(expected)} in:\n{output}")
    for absent in step.absent:
        if absent in output:
            raise StepError(f"there is an unexpected {_show(absent)} in:\n{output}")


def _check_same(output: str, step: Step) -> None:
    expected = str(step.expected[0])
    if _normalize(output) != _normalize(expected):
        raise StepError(f"expected:\n{_normalize(expected)}\nfound:\n{_normalize(output)}")


def _normalize(text: str) -> list[list[str]]:
    return [_DELETED_FROM.sub(" deleted", line).split() for line in text.strip().splitlines()]


def _check_order(output: str, step: Step) -> None:
    rest = output
    for expected in step.expected:
        found = _find(expected, rest)
        if not found:
            raise StepError(f"there is no {_show(expected)} (in this place) in:\n{output}")
        rest = rest[found.end() :]


def _find(expected: Expected, text: str) -> re.Match[str] | None:
    return re.search(re.escape(expected) if isinstance(expected, str) else expected, text)


def _show(expected: Expected) -> str:
    return repr(expected) if isinstance(expected, str) else f"match of {expected.pattern!r}"
