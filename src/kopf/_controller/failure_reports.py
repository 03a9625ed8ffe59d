"""
Failures: log lines about objects that could not be handled.

Each error is logged once: per object, or per namespace for missing permissions.
"""

from __future__ import annotations

import logging
import re

from kopf._client.errors import APIError, APIForbiddenError, APINetworkError, APIPayloadTooLargeError
from kopf._controller.changes.scope import ReconciliationScope
from kopf._controller.error_texts import describe_error
from kopf._controller.tracked_objects import TrackedObject
from kopf._logging.loggers import ObjectLogger
from kopf._values import codec
from kopf._values.objects import KubeObject

logger = logging.getLogger(__name__)

_FULL_ANNOTATIONS = re.compile(r"metadata\.annotations: Too long", re.IGNORECASE)
_OTHERS = frozenset({"apiVersion", "kind", "metadata", "status"})


def report_failure(
    scope: ReconciliationScope,
    tracked: TrackedObject,
    obj: KubeObject,
    error: BaseException,
    *,
    delay: float | None,
    is_unsaved: bool,
) -> None:
    """
    Log the failure: the first time as an error, the same error again as a debug message.

    ``delay`` is the time until the next pass, in seconds; ``None`` is for a conflict, which is no error. If results of
    the handlers are unsaved (``is_unsaved``), the message explains the consequences.
    """
    settings = scope.runtime.settings
    object_logger = ObjectLogger(body=obj, settings=settings)
    if delay is None:
        object_logger.debug("The object has changed meanwhile; going on from its fresh state: %s", str(error))
        return
    text, culprit = describe_error(error)
    is_new = tracked.complaint != text
    tracked.complaint = text
    loss = ""
    if is_unsaved and isinstance(error, APIError) and error.is_unacceptable:
        loss = f". {_explain_loss(error, obj)}"
    if isinstance(error, APIForbiddenError):
        _explain_denial(scope, error, obj.head.namespace)
        is_new = False  # the same for all objects
    if isinstance(error, APINetworkError) and error.is_told:
        is_new = False
    object_logger.log(
        logging.ERROR if is_new else logging.DEBUG,
        "The object could not be handled, so it is left alone for %s seconds: %s",
        delay,
        text + loss,
        exc_info=culprit,
    )


def _explain_denial(scope: ReconciliationScope, error: APIForbiddenError, namespace: str | None) -> None:
    """Log once per namespace which permission is missing, since this concerns all objects there."""
    verb, resource = error.method.lower(), scope.resource
    subresource = "status" if error.path.endswith("/status") else None
    if scope.runtime.warnings.is_new((resource, verb, subresource, namespace)):
        logger.error(
            "Cannot %s %r%s%s: not permitted. The operator will try again later. The error: %s. %s",
            verb,
            resource,
            "" if subresource is None else f" ({subresource})",
            "" if namespace is None else f" in the namespace {namespace!r}",
            error,
            scope.runtime.advise(verb, resource, [verb], namespace=namespace, subresource=subresource),
        )


def _explain_loss(error: APIError, obj: KubeObject) -> str:
    """Explain the consequences and the cure if the results of the handlers can never be saved on the object."""
    if _FULL_ANNOTATIONS.search(error.message):
        cure = _explain_full_annotations(error, obj)
    elif isinstance(error, APIPayloadTooLargeError):
        cure = (
            "The object would be too large. Make it smaller, or leave out large fields, with ignored_fields of "
            "settings.persistence.diffbase_storage."
        )
    else:
        cure = "Change the object so that the API accepts it, or change what the handlers write."
    return (
        f"Kopf cannot note the work of the handlers on the object: after a restart, they will be called again. {cure}"
    )


def _explain_full_annotations(error: APIError, obj: KubeObject) -> str:
    """Explain what can occupy the space: annotations by handlers, or our own state; and the cures."""
    authors = f"{' & '.join(error.authors)} writes some: make them smaller if they are large. " if error.authors else ""
    size, field = _find_largest_field(obj)
    return (
        f"The annotations are full (256 KiB in total). {authors}Kopf keeps the state of the handlers and the last "
        f"handled configuration there by default; its largest field is {field!r} ({max(1, round(size / 1024))} "
        f"KiB). Leave it out, if no handlers need its changes: ignored_fields=[{field!r}] of "
        f"settings.persistence.diffbase_storage. Or keep both in the status: kopf.StatusDiffBaseStorage() there, and "
        f"kopf.StatusProgressStorage() as settings.persistence.progress_storage. Or remove other annotations."
    )


def _find_largest_field(obj: KubeObject) -> tuple[int, str]:
    """Return the size in bytes and the name of the largest essential field, or of the annotations of others."""
    spec = obj.get("spec")
    fields = {key: value for key, value in obj.items() if key not in _OTHERS and key != "spec"}
    fields |= {f"spec.{key}": value for key, value in spec.items()} if isinstance(spec, dict) else {"spec": spec}
    annotations = obj.head.annotations or {}
    fields["metadata.annotations"] = {name: value for name, value in annotations.items() if "kopf" not in name}
    return max((len(codec.encode(value)), name) for name, value in fields.items())
