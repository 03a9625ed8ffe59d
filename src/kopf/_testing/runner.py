"""
The runner: a command of ``kopf`` in a background thread, as if it was started from a terminal.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import threading
from types import TracebackType
from typing import Any, Self

import click.testing

from kopf._handlers.registry import OperatorRegistry
from kopf._settings.settings import OperatorSettings
from kopf.cli import CLIControls, main


class KopfRunner:
    """
    Runs a command of ``kopf`` in a background thread: usually, an operator under test.

    The operator stops when the context ends; only then are its output and outcome available. It runs in this process,
    so tests can mock its code; it handles no signals. The runner captures all output of this process during the
    context.

    Large because the existing tests of operators use each of these properties of the outcome.

    :param args: the arguments of the command, e.g. ``['run', '-A', '--verbose', 'handlers.py']``; these and
        all other arguments are passed to :meth:`click.testing.CliRunner.invoke`.
    :param reraise: whether to raise the operator's errors when the context ends,
        unless the context ends with another error.
    :param timeout: how long to wait for the operator to stop, in seconds; forever by default.
        :class:`TimeoutError` is raised if it does not stop in time.
    :param registry: the registry to use instead of the default one.
    :param settings: the settings to use instead of the default ones.
    """

    def __init__(
        self,
        *args: Any,
        reraise: bool = True,
        timeout: float | None = None,
        registry: OperatorRegistry | None = None,
        settings: OperatorSettings | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self._args = args
        self._kwargs = kwargs
        self._reraise = reraise
        self._timeout = timeout
        self._stop_flag = threading.Event()
        self._controls = CLIControls(stop_flag=self._stop_flag, registry=registry, settings=settings)
        self._future: concurrent.futures.Future[click.testing.Result] = concurrent.futures.Future()
        # Daemonic, for the operators that do not stop in time: they must not block the exit from the tests.
        self._thread = threading.Thread(target=self._run, name="kopf-runner", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_flag.set()
        self._thread.join(self._timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"The operator has not stopped in {self._timeout} seconds.") from exc
        if exc is None and self._reraise and (error := self.exception) is not None:
            error.add_note(f"The output of the operator:\n{self.output}")
            raise error

    def _run(self) -> None:
        # The event loop of Python: the faster ones are for the command line as such.
        with asyncio.Runner() as runner:
            controls = dataclasses.replace(self._controls, loop=runner.get_loop())
            try:
                result = click.testing.CliRunner().invoke(main, *self._args, obj=controls, **self._kwargs)
            except BaseException as e:
                self._future.set_exception(e)
            else:
                self._future.set_result(result)

    @property
    def future(self) -> concurrent.futures.Future[click.testing.Result]:
        """The future outcome of the command."""
        return self._future

    @property
    def _result(self) -> click.testing.Result:
        if not self._future.done():
            raise RuntimeError(
                "The output and the outcome are known only when the operator has stopped, i.e. after the `with` block."
            )
        return self._future.result()

    @property
    def output(self) -> str:
        """Everything that was printed and logged, in the order in which the user would see it."""
        return self._result.output

    @property
    def stdout(self) -> str:
        """The same as :attr:`output`: existing tests expect the logs here, too."""
        return self._result.output

    @property
    def stdout_bytes(self) -> bytes:
        """The same as :attr:`stdout`, not decoded."""
        return self._result.output.encode()

    @property
    def stderr(self) -> str:
        """The error stream only: the logs mostly."""
        return self._result.stderr

    @property
    def stderr_bytes(self) -> bytes:
        """The same as :attr:`stderr`, not decoded."""
        return self._result.stderr.encode()

    @property
    def exit_code(self) -> int:
        """The exit code of the command; 0 for success."""
        return self._result.exit_code

    @property
    def exception(self) -> BaseException | None:
        """The error of the operator, if it has failed: the original exception, not the resulting exit."""
        exception = self._result.exception
        if isinstance(exception, SystemExit) and exception.__cause__ is not None:
            return exception.__cause__
        return exception

    @property
    def exc_info(self) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
        """The type, the exception, and the traceback of :attr:`exception`, if any."""
        exception = self.exception
        return None if exception is None else (type(exception), exception, exception.__traceback__)
