"""
The verdict on one change: the admission handlers run in parallel, each once, as somebody waits for the response.

One response can have only one error, so the most intended one is chosen. Handlers whose failures are ignored cannot
deny anything: the user gets a warning instead.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Sequence

from kopf._handlers.attempts import Attempt, Outcome
from kopf._handlers.causes import WebhookCause
from kopf._handlers.executor import HandlerExecutor
from kopf._handlers.filters import matches
from kopf._handlers.handler_errors import AdmissionError, PermanentError, TemporaryError, deny_malformed, describe
from kopf._handlers.handlers import WebhookHandler
from kopf._handlers.registry import deduplicate
from kopf._values import codec
from kopf._values.bodies import StanzaError
from kopf._values.foreign_values import WARNING, find_in_patch, name_foreign_values
from kopf._values.reviews import ResponseStatus

_DEFAULT_CODE = 500
_PRIORITIES = (AdmissionError, PermanentError, TemporaryError, Exception)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The decision of the handlers."""

    denial: ResponseStatus | None = None
    patch: bytes | None = None
    """A serialised JSON-patch."""


async def judge(
    executor: HandlerExecutor,
    cause: WebhookCause,
    handlers: Sequence[WebhookHandler],
    attempt: Attempt,
    *,
    is_shown: bool,
) -> Verdict:
    """
    Call the handlers that match the object. The cause collects the warnings.

    If ``is_shown``, the user who makes the change sees all errors unchanged: ``settings.admission.show_errors``.

    Raises :class:`RecursionError` if the objects are nested too deeply for Python.
    """
    _ = cause.kwargs  # if they cannot be made, fail now, not in the middle
    errors: dict[WebhookHandler, Exception] = {}
    matching = list(deduplicate(handler for handler in handlers if _matches(handler, cause, errors)))
    await _call_all(functools.partial(executor.execute, cause=cause, attempt=attempt), matching, errors)
    author = " or ".join(map(str, matching))  # they run at the same time, so nobody can tell which one
    cause.patch.sign(author)
    if cause.discarded:
        cause.logger.warning("The patch of a validating handler is ignored: only mutating handlers can patch.")
    ordered = {handler: errors[handler] for handler in handlers if handler in errors}
    if denial := _choose_denial(cause, ordered, is_shown=is_shown):
        return Verdict(denial=denial)
    return _conclude(cause, author, is_shown=is_shown)


def _matches(handler: WebhookHandler, cause: WebhookCause, errors: dict[WebhookHandler, Exception]) -> bool:
    try:
        return matches(handler, cause)
    except Exception as e:  # of callbacks; the handler could have denied the change
        if isinstance(e.__cause__, StanzaError):
            errors[handler] = deny_malformed(e.__cause__)
            return False
        cause.logger.error("%s cannot be filtered: %s", handler, e, exc_info=e)
        errors[handler] = e
        return False


async def _call_all(
    execute: Callable[[WebhookHandler], Awaitable[Outcome]],
    handlers: Sequence[WebhookHandler],
    errors: dict[WebhookHandler, Exception],
) -> None:
    async def call(handler: WebhookHandler) -> None:
        outcome = await execute(handler)
        if isinstance(outcome.exception, Exception):
            errors[handler] = outcome.exception

    if len(handlers) < 2:  # the usual case, without tasks
        for handler in handlers:
            await call(handler)
        return
    async with asyncio.TaskGroup() as group:
        for handler in handlers:
            group.create_task(call(handler), name=f"admission by {handler.id!r}")


def _choose_denial(
    cause: WebhookCause, errors: dict[WebhookHandler, Exception], *, is_shown: bool
) -> ResponseStatus | None:
    for handler, error in errors.items():
        if handler.ignore_failures:
            text = describe(error, instead="see the log of the operator.", is_shown=is_shown)
            cause.warnings.append(f"{handler} has failed, which is ignored: {text}")
    denials = {handler: error for handler, error in errors.items() if not handler.ignore_failures}
    if not denials:
        return None
    handler, error = min(denials.items(), key=lambda item: _get_priority(item[1]))
    instead = f"{handler} has failed; see the log of the operator."
    code = error.code if isinstance(error, AdmissionError) else _DEFAULT_CODE
    return {"message": describe(error, instead=instead, is_shown=is_shown), "code": code}


def _get_priority(error: Exception) -> int:
    return next(index for index, cls in enumerate(_PRIORITIES) if isinstance(error, cls))


def _conclude(cause: WebhookCause, author: str, *, is_shown: bool) -> Verdict:
    """Admit the change, with the patch if there is any."""
    if not cause.patch:
        return Verdict()
    if cause.new is None:
        cause.logger.warning("The patch is ignored: there is nothing to patch in %s requests.", cause.operation)
        return Verdict()
    try:
        items = cause.patch.as_json_patch()
        if found := [*find_in_patch(items)]:
            cause.logger.warning(WARNING, author, name_foreign_values(found))
        return Verdict(patch=codec.encode(items) if items else None)
    except RecursionError:
        raise
    except Exception as e:  # of functions in the patch, or of values without a JSON form
        cause.logger.error("Cannot make the patch: %s", e, exc_info=e)
        reason = e if is_shown else e.__cause__ or e  # users of the cluster do not see files and lines
        text = describe(reason, instead="see the log of the operator.", is_shown=is_shown)
        return Verdict(denial={"message": f"Cannot make the patch: {text}", "code": _DEFAULT_CODE})
