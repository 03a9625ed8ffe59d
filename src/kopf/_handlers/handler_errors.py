"""Errors that handlers raise to say what to do next, and the modes of treating all other errors."""

from __future__ import annotations

import enum

from kopf._values.bodies import StanzaError
from kopf._values.model_mismatch import ModelMismatchError

DEFAULT_RETRY_DELAY = 60.0


class ErrorsMode(enum.Enum):
    """How arbitrary exceptions are treated, i.e. neither temporary nor permanent ones."""

    IGNORED = 1
    TEMPORARY = 2
    PERMANENT = 3


class PermanentError(Exception):
    """A fatal error: the handler will never succeed, so it is not retried."""


class TemporaryError(Exception):
    """
    A recoverable error: the handler is to be retried after the ``delay`` (seconds; the default is 60).

    With a delay of ``None`` or 0, it is retried at once.
    """

    def __init__(self, msg: object = None, /, delay: float | None = DEFAULT_RETRY_DELAY) -> None:
        super().__init__(*(() if msg is None else (msg,)))
        self.delay = delay


class AdmissionError(PermanentError):
    """
    The change is denied: raised by the admission handlers.

    ``message`` is shown to the user who makes the change, ``code`` is the HTTP status of the API's response (the API
    server replaces those below 400).
    """

    def __init__(self, message: str | None = "", code: int | None = 500) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.code = 500 if code is None else code


class HandlerTimeoutError(PermanentError):
    """The handler did not succeed within its timeout."""


class HandlerRetriesError(PermanentError):
    """The handler did not succeed within its number of retries."""


class UnfitObjectError(TemporaryError):
    """The object does not fit its model, so the handler is not called until that is changed."""

    def __init__(self, mismatch: ModelMismatchError) -> None:
        super().__init__(mismatch, delay=None)
        self.mismatch = mismatch


class HandlerChildrenRetry(TemporaryError):
    """Some sub-handlers are not finished yet, so their parent is to be called again."""


def deny_malformed(error: StanzaError) -> AdmissionError:
    """The object makes no sense: it is the fault of who has sent it, and they are told so; it is none of a handler."""
    return AdmissionError(str(error), code=400)


def name_error(error: BaseException) -> str:
    """
    Describe the error to the operator's developers.

    If nobody has raised it to be read, its class can say more than its text: ``KeyError: 'size'``.
    """
    is_meant_so = isinstance(error, PermanentError | TemporaryError) or type(error) is Exception
    return f"{type(error).__name__}: {error}" if str(error) and not is_meant_so else str(error) or type(error).__name__


def describe(error: BaseException, *, instead: str, is_shown: bool) -> str:
    """
    Describe the error to those who are not the operator's developers, but e.g. users of the cluster.

    Only the errors of the framework are raised to be read; all others can have anything in them, secrets included:
    there is another sentence ``instead``, unless everything is to be shown.
    """
    if is_shown or isinstance(error, PermanentError | TemporaryError):
        return str(error) or type(error).__name__
    return instead
