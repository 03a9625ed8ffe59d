"""Errors by which handlers decide about their retries, and the modes for all other errors."""

from __future__ import annotations

import enum

from kopf._values.bodies import StanzaError
from kopf._values.model_mismatch import ModelMismatchError
from kopf._values.user_functions import NO_TEXT, get_text


class ErrorsMode(enum.Enum):
    """
    The effect of arbitrary exceptions of a handler: other than ``TemporaryError`` & ``PermanentError``.

    ``IGNORED`` counts them as successes, ``TEMPORARY`` retries the handler, ``PERMANENT`` fails it at once.
    """

    IGNORED = 1
    TEMPORARY = 2
    PERMANENT = 3


class PermanentError(Exception):
    """A handler raises it when it can never succeed. Kopf does not retry the handler."""


class TemporaryError(Exception):
    """
    A handler raises it to be retried later.

    :param msg: the message for logs and events.
    :param delay: the delay before the retry, in seconds; with ``None`` or 0, Kopf retries the handler at once.
    """

    delay: float | None = 60.0  # for subclasses that do not initialise it

    def __init__(self, msg: object = None, /, delay: float | None = 60.0) -> None:
        super().__init__(*(() if msg is None else (msg,)))
        self.delay = delay if delay is None or type(delay) in (int, float) else float(delay)


class AdmissionError(PermanentError):
    """
    An admission handler raises it to deny the change.

    :param message: the message for the user that makes the change.
    :param code: the HTTP status of the response of the API server, which replaces statuses below 400.
    """

    code: int = 500  # for subclasses that do not initialise it

    def __init__(self, message: str | None = "", code: int | None = 500) -> None:
        super().__init__(*(() if message is None else (message,)))
        self.code = 500 if code is None else code


class HandlerTimeoutError(PermanentError):
    """The handler did not succeed within its timeout."""


class HandlerRetriesError(PermanentError):
    """The handler did not succeed within its number of retries."""


class UnfitObjectError(TemporaryError):
    """The object does not fit its model, so Kopf does not call the handler until the object changes."""

    def __init__(self, mismatch: ModelMismatchError) -> None:
        super().__init__(mismatch, delay=None)
        self.mismatch = mismatch


class HandlerChildrenRetry(TemporaryError):
    """Some sub-handlers are not finished, so Kopf calls their parent again."""


def with_text(error: Exception) -> Exception:
    """Return the error; if its class fails to make its text, return an error with the same consequences."""
    if (text := get_text(error)) != NO_TEXT:
        return error
    match error:
        case TemporaryError():
            readable: Exception = TemporaryError(text, delay=error.delay)
        case AdmissionError():
            readable = AdmissionError(text, code=error.code)
        case PermanentError():
            readable = PermanentError(text)
        case _:
            readable = Exception(f"{type(error).__name__}: {text}")
    readable.__cause__ = error
    return readable


def deny_malformed(error: StanzaError) -> AdmissionError:
    """Make an error for the user that has sent a malformed object: it is not the fault of a handler."""
    return AdmissionError(str(error), code=400)


def name_error(error: BaseException) -> str:
    """
    Describe the error to the developers of the operator.

    It omits the class only of errors with a text for readers. For others, the class tells more: ``KeyError: 'size'``.
    """
    is_readable = isinstance(error, PermanentError | TemporaryError) or type(error) is Exception
    return f"{type(error).__name__}: {error}" if str(error) and not is_readable else str(error) or type(error).__name__


def describe(error: BaseException, *, instead: str, is_shown: bool) -> str:
    """
    Describe the error to other people than the developers of the operator, e.g. to users of the cluster.

    Only the errors of the framework are made for readers. Others can contain anything, e.g. secrets: the result is
    ``instead`` of their text, unless ``is_shown``.
    """
    if is_shown or isinstance(error, PermanentError | TemporaryError):
        return str(error) or type(error).__name__
    return instead
