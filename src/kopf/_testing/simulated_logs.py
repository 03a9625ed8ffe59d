"""
The logs of a simulation: what the operator has said, and when it was in the virtual time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator

from kopf._logging.tracebacks import is_framework


@dataclasses.dataclass(frozen=True)
class TimedLine:
    """One message."""

    time: float
    """When, in seconds since the beginning of the simulation."""
    level: int
    message: str
    error: BaseException | None
    """What the traceback in the log is about, if there is one."""
    namespace: str
    name: str
    """The name of the object that it is about, if it is about an object."""
    is_routine: bool = False
    """Whether it is what the framework itself says for debugging; the journal tells the same in fewer words."""

    def __str__(self) -> str:
        error = f" {type(self.error).__name__}: {self.error}" if self.error is not None else ""
        return f"{self.time:12.3f}  [{logging.getLevelName(self.level).lower()}] {self.message}{error}"


class SimulatedLogs(logging.Handler):
    """Everything that is logged by the framework, and by the handlers through the loggers they are given."""

    def __init__(self, get_time: Callable[[], float]) -> None:
        super().__init__(logging.DEBUG)
        self._get_time = get_time
        self.lines: list[TimedLine] = []

    def __iter__(self) -> Iterator[TimedLine]:
        return iter([*self.lines])

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, text: object) -> bool:
        return any(str(text) in line.message for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))

    def get_messages(self, level: int = logging.DEBUG, *, name: str | None = None) -> list[str]:
        """Give the messages of this level and higher; about the objects of this name, or all of them."""
        return [line.message for line in self.lines if line.level >= level and name in (None, line.name)]

    def emit(self, record: logging.LogRecord) -> None:
        ref = getattr(record, "k8s_ref", None) or {}
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(TimedLine(
            self._get_time(), record.levelno, record.getMessage(), error,
            ref.get("namespace") or "", ref.get("name") or "",
            is_routine=record.levelno <= logging.DEBUG and is_framework(record.pathname),
        ))

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """Take what is logged, down to the debug level."""
        logger = logging.getLogger("kopf")
        level = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(self)
