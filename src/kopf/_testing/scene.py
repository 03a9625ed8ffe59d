"""The scene of one call in a test: the object, and those parts of an operator that handlers get to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kopf._controller.memos import Memo
from kopf._handlers.handlers import Handler, ResourceHandler
from kopf._handlers.outcomes import Outcome
from kopf._logging.loggers import LocalObjectLogger, Logger, ObjectLogger
from kopf._settings.settings import OperatorSettings
from kopf._testing.calling_options import CallingOptions, make_attempt, make_indices
from kopf._testing.given_objects import GivenObject, complete, guess_resource, make_object, read_object
from kopf._testing.handler_run import HandlerEnding, HandlerRun, LogLine
from kopf._testing.recording import EventList, Loops, RecordingExecutor, RecordingLogger
from kopf._values.bodies import Body
from kopf._values.patches import Patch
from kopf._values.resources import Resource


class Mark(NamedTuple):
    """How much was recorded before a call; sub-handlers are called in the middle of others."""

    lines: int
    events: int


class Scene:
    """What does not depend on the kind of the handler."""

    def __init__(
        self, handlers: Sequence[Handler], given: GivenObject | None, options: CallingOptions, loops: Loops
    ) -> None:
        self.options = options
        self.settings = options["settings"] if "settings" in options else OperatorSettings()
        self.executor = RecordingExecutor(self.settings.execution, loops)
        self.attempt = make_attempt(options)
        self.sink = EventList(self.settings)
        self._lines: list[LogLine] = []
        self._content = read_object(given)
        selector = next((item.selector for item in handlers if isinstance(item, ResourceHandler)), None)
        self.resource: Resource = options.get("resource") or guess_resource(self._content, selector)

    def complete(self, *, is_deleted: bool = False) -> dict[str, Any]:
        """Make the given object complete."""
        return complete(self._content, self.resource, is_deleted=is_deleted)

    def make_kwargs(self, content: dict[str, Any], *, is_local: bool = False) -> dict[str, Any]:
        """Make what the causes of all objects have; ``is_local`` if the log messages never become Kubernetes events."""
        body = Body(make_object(content).for_users())
        logger = (LocalObjectLogger if is_local else ObjectLogger)(body=body, settings=self.settings)
        return {"resource": self.resource, "body": body, "patch": Patch(body=body), **self.make_common_kwargs(logger)}

    def make_common_kwargs(self, logger: Logger) -> dict[str, Any]:
        """Make what all causes have."""
        return {
            "logger": RecordingLogger(logger, self._lines),
            "memo": self.options["memo"] if "memo" in self.options else Memo(),
            "indices": make_indices(self.options.get("indices", {}), self.resource),
        }

    def mark(self) -> Mark:
        """Note how much is recorded already."""
        return Mark(len(self._lines), len(self.sink.events))

    def make_run(self, handler: Handler, outcome: Outcome | None, mark: Mark, /, **fields: Any) -> HandlerRun:
        """Tell how the handler has ended, and what was recorded since the mark. With no outcome, it was not called."""
        ending = {} if outcome is None else _describe(outcome)
        fields = {"outcome": "skipped", **ending, **fields}
        logs, events = self._lines[mark.lines :], self.sink.events[mark.events :]
        return HandlerRun(id=handler.id, logs=tuple(logs), events=tuple(events), **fields)


def _describe(outcome: Outcome) -> dict[str, Any]:
    ending: HandlerEnding = "succeeded"
    if not outcome.final:
        ending = "retried"
    elif outcome.exception is not None:
        ending = "failed"
    elif outcome.ignored is not None:
        ending = "ignored"
    return {
        "outcome": ending,
        "result": outcome.result,
        "exception": outcome.ignored if outcome.exception is None else outcome.exception,
        "delay": None if outcome.final else outcome.delay or 0,
    }
