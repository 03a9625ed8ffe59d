"""
Kopf: a framework to write Kubernetes operators in Python.

Kopf imports each name on its first use. So, unused parts, e.g. webhook servers, take no memory and no time at the start
of an operator.
"""

from __future__ import annotations

import importlib
import sys
import typing

if typing.TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from kopf import on
    from kopf._admission.servers.auto import WebhookAutoServer, WebhookAutoTunnel
    from kopf._admission.servers.local import WebhookDockerDesktopServer, WebhookK3dServer, WebhookMinikubeServer
    from kopf._admission.servers.ngrok import WebhookNgrokTunnel
    from kopf._admission.servers.service import WebhookServiceServer
    from kopf._admission.servers.webhook_server import WebhookServer
    from kopf._client.auth.credentials import AiohttpSession, ConnectionInfo, LoginError
    from kopf._client.auth.kubeconfig import login_with_kubeconfig
    from kopf._client.auth.piggyback import login_via_async_client, login_via_client, login_via_pykube
    from kopf._client.auth.service_account import login_with_service_account
    from kopf._client.errors import (
        APIClientError,
        APIConflictError,
        APIError,
        APIForbiddenError,
        APIGoneError,
        APINetworkError,
        APINotFoundError,
        APIPayloadTooLargeError,
        APIServerError,
        APITooManyRequestsError,
        APIUnauthorizedError,
        APIUnprocessableError,
        APIUnsupportedMediaTypeError,
    )
    from kopf._controller.background.stop_signals import (
        AsyncDaemonStopperChecker,
        DaemonStopped,
        DaemonStoppingReason,
        Stopped,
        SyncDaemonStopperChecker,
        SyncStopped,
    )
    from kopf._controller.changes.subhandler_execution import execute
    from kopf._controller.indexing.indices import Index, Store
    from kopf._controller.memos import Memo
    from kopf._controller.sharing import fencing_token
    from kopf._events.reporting import event, exception, info, warn
    from kopf._handlers import lifecycles
    from kopf._handlers.conditions import Condition, conditions
    from kopf._handlers.declarations import DeclarationError
    from kopf._handlers.filter_criteria import ABSENT, PRESENT, all_, any_, none_, not_
    from kopf._handlers.handler_errors import (
        AdmissionError,
        ErrorsMode,
        HandlerRetriesError,
        HandlerTimeoutError,
        PermanentError,
        TemporaryError,
    )
    from kopf._handlers.lifecycles import get_default_lifecycle, set_default_lifecycle
    from kopf._handlers.needs import needs
    from kopf._handlers.registry import OperatorRegistry, get_default_registry, set_default_registry
    from kopf._kits.applying import ApplyConflictError, apply
    from kopf._kits.hierarchies import (
        adjust_namespace,
        adopt,
        append_owner_reference,
        harmonize_naming,
        label,
        remove_owner_reference,
    )
    from kopf._kits.readiness import NotReadyError, is_ready, require_ready
    from kopf._kits.reconciling import ForeignObjectError, ref
    from kopf._logging.configuration import LogFormat, configure
    from kopf._logging.loggers import LocalObjectLogger, Logger, ObjectLogger
    from kopf._models.custom_resources import CustomResource
    from kopf._models.markers import ConditionList, Rule, Schema
    from kopf._models.quantities import Duration, Quantity
    from kopf._operator.activities import ActivityError
    from kopf._operator.embedding import operator, run, run_tasks, spawn_tasks
    from kopf._settings.settings import OperatorSettings
    from kopf._storage.diffbase import (
        AnnotationsDiffBaseStorage,
        DiffBaseStorage,
        MultiDiffBaseStorage,
        StatusDiffBaseStorage,
    )
    from kopf._storage.progress import (
        AnnotationsProgressStorage,
        MultiProgressStorage,
        ProgressRecord,
        ProgressStorage,
        SmartProgressStorage,
        StatusProgressStorage,
    )
    from kopf._values.backoffs import exponential
    from kopf._values.bodies import (
        Annotations,
        Body,
        BodyEssence,
        Labels,
        Meta,
        RawBody,
        RawEvent,
        RawEventType,
        Spec,
        Status,
    )
    from kopf._values.diffs import Diff, DiffItem, DiffOperation
    from kopf._values.fields import FieldPath, FieldSpec
    from kopf._values.ids import HandlerId
    from kopf._values.model_mismatch import ModelMismatchError
    from kopf._values.operator_error import OperatorError
    from kopf._values.patches import Patch, PatchFn
    from kopf._values.reasons import Activity, Operation, Reason
    from kopf._values.references import (
        ObjectReference,
        OwnerReference,
        build_object_reference,
        build_owner_reference,
    )
    from kopf._values.resources import Resource
    from kopf._values.reviews import (
        Headers,
        SSLPeer,
        UserInfo,
        WebhookClientConfig,
        WebhookClientConfigService,
        WebhookFn,
        WebhookServerProtocol,
    )
    from kopf._values.selectors import EVERYTHING
    from kopf._values.version import __version__, __version_tuple__
    from kopf.on import convert, daemon, index, reconcile, register, subhandler, timer

__all__ = [
    "ABSENT",
    "EVERYTHING",
    "PRESENT",
    "APIClientError",
    "APIConflictError",
    "APIError",
    "APIForbiddenError",
    "APIGoneError",
    "APINetworkError",
    "APINotFoundError",
    "APIPayloadTooLargeError",
    "APIServerError",
    "APITooManyRequestsError",
    "APIUnauthorizedError",
    "APIUnprocessableError",
    "APIUnsupportedMediaTypeError",
    "Activity",
    "ActivityError",
    "AdmissionError",
    "AiohttpSession",
    "Annotations",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "ApplyConflictError",
    "AsyncDaemonStopperChecker",
    "Body",
    "BodyEssence",
    "Condition",
    "ConditionList",
    "ConnectionInfo",
    "CustomResource",
    "DaemonStopped",
    "DaemonStoppingReason",
    "DeclarationError",
    "Diff",
    "DiffBaseStorage",
    "DiffItem",
    "DiffOperation",
    "Duration",
    "ErrorsMode",
    "FieldPath",
    "FieldSpec",
    "ForeignObjectError",
    "HandlerId",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "Headers",
    "Index",
    "Labels",
    "LocalObjectLogger",
    "LogFormat",
    "Logger",
    "LoginError",
    "Memo",
    "Meta",
    "ModelMismatchError",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "NotReadyError",
    "ObjectLogger",
    "ObjectReference",
    "Operation",
    "OperatorError",
    "OperatorRegistry",
    "OperatorSettings",
    "OwnerReference",
    "Patch",
    "PatchFn",
    "PermanentError",
    "ProgressRecord",
    "ProgressStorage",
    "Quantity",
    "RawBody",
    "RawEvent",
    "RawEventType",
    "Reason",
    "Resource",
    "Rule",
    "SSLPeer",
    "Schema",
    "SmartProgressStorage",
    "Spec",
    "Status",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
    "Stopped",
    "Store",
    "SyncDaemonStopperChecker",
    "SyncStopped",
    "TemporaryError",
    "UserInfo",
    "WebhookAutoServer",
    "WebhookAutoTunnel",
    "WebhookClientConfig",
    "WebhookClientConfigService",
    "WebhookDockerDesktopServer",
    "WebhookFn",
    "WebhookK3dServer",
    "WebhookMinikubeServer",
    "WebhookNgrokTunnel",
    "WebhookServer",
    "WebhookServerProtocol",
    "WebhookServiceServer",
    "__version__",
    "__version_tuple__",
    "adjust_namespace",
    "adopt",
    "all_",
    "any_",
    "append_owner_reference",
    "apply",
    "build_object_reference",
    "build_owner_reference",
    "conditions",
    "configure",
    "convert",
    "daemon",
    "event",
    "exception",
    "execute",
    "exponential",
    "fencing_token",
    "get_default_lifecycle",
    "get_default_registry",
    "harmonize_naming",
    "index",
    "info",
    "is_ready",
    "label",
    "lifecycles",
    "login_via_async_client",
    "login_via_client",
    "login_via_pykube",
    "login_with_kubeconfig",
    "login_with_service_account",
    "needs",
    "none_",
    "not_",
    "on",
    "operator",
    "reconcile",
    "ref",
    "register",
    "remove_owner_reference",
    "require_ready",
    "run",
    "run_tasks",
    "set_default_lifecycle",
    "set_default_registry",
    "spawn_tasks",
    "subhandler",
    "timer",
    "warn",
]

_HOMES = {
    "kopf._admission.servers.auto": "WebhookAutoServer WebhookAutoTunnel",
    "kopf._admission.servers.local": "WebhookDockerDesktopServer WebhookK3dServer WebhookMinikubeServer",
    "kopf._admission.servers.ngrok": "WebhookNgrokTunnel",
    "kopf._admission.servers.service": "WebhookServiceServer",
    "kopf._admission.servers.webhook_server": "WebhookServer",
    "kopf._client.auth.credentials": "AiohttpSession ConnectionInfo LoginError",
    "kopf._client.auth.kubeconfig": "login_with_kubeconfig",
    "kopf._client.auth.piggyback": "login_via_async_client login_via_client login_via_pykube",
    "kopf._client.auth.service_account": "login_with_service_account",
    "kopf._client.errors": (
        "APIClientError APIConflictError APIError APIForbiddenError APIGoneError APINetworkError "
        "APINotFoundError APIPayloadTooLargeError APIServerError APITooManyRequestsError APIUnauthorizedError "
        "APIUnprocessableError APIUnsupportedMediaTypeError"
    ),
    "kopf._controller.background.stop_signals": (
        "AsyncDaemonStopperChecker DaemonStopped DaemonStoppingReason Stopped SyncDaemonStopperChecker SyncStopped"
    ),
    "kopf._controller.changes.subhandler_execution": "execute",
    "kopf._controller.indexing.indices": "Index Store",
    "kopf._controller.memos": "Memo",
    "kopf._controller.sharing": "fencing_token",
    "kopf._events.reporting": "event exception info warn",
    "kopf._handlers.declarations": "DeclarationError",
    "kopf._handlers.handler_errors": (
        "AdmissionError ErrorsMode HandlerRetriesError HandlerTimeoutError PermanentError TemporaryError"
    ),
    "kopf._handlers.conditions": "Condition conditions",
    "kopf._handlers.filter_criteria": "ABSENT PRESENT all_ any_ none_ not_",
    "kopf._handlers.lifecycles": "get_default_lifecycle set_default_lifecycle",
    "kopf._handlers.needs": "needs",
    "kopf._handlers.registry": "OperatorRegistry get_default_registry set_default_registry",
    "kopf._kits.applying": "ApplyConflictError apply",
    "kopf._kits.hierarchies": (
        "adjust_namespace adopt append_owner_reference harmonize_naming label remove_owner_reference"
    ),
    "kopf._kits.readiness": "NotReadyError is_ready require_ready",
    "kopf._kits.reconciling": "ForeignObjectError ref",
    "kopf._logging.configuration": "LogFormat configure",
    "kopf._logging.loggers": "LocalObjectLogger Logger ObjectLogger",
    "kopf._models.custom_resources": "CustomResource",
    "kopf._models.markers": "ConditionList Rule Schema",
    "kopf._models.quantities": "Duration Quantity",
    "kopf._operator.activities": "ActivityError",
    "kopf._operator.embedding": "operator run run_tasks spawn_tasks",
    "kopf._settings.settings": "OperatorSettings",
    "kopf._storage.diffbase": "AnnotationsDiffBaseStorage DiffBaseStorage MultiDiffBaseStorage StatusDiffBaseStorage",
    "kopf._storage.progress": (
        "AnnotationsProgressStorage MultiProgressStorage ProgressRecord ProgressStorage SmartProgressStorage "
        "StatusProgressStorage"
    ),
    "kopf._values.backoffs": "exponential",
    "kopf._values.bodies": "Annotations Body BodyEssence Labels Meta RawBody RawEvent RawEventType Spec Status",
    "kopf._values.diffs": "Diff DiffItem DiffOperation",
    "kopf._values.model_mismatch": "ModelMismatchError",
    "kopf._values.operator_error": "OperatorError",
    "kopf._values.fields": "FieldPath FieldSpec",
    "kopf._values.ids": "HandlerId",
    "kopf._values.patches": "Patch PatchFn",
    "kopf._values.reasons": "Activity Operation Reason",
    "kopf._values.references": "ObjectReference OwnerReference build_object_reference build_owner_reference",
    "kopf._values.resources": "Resource",
    "kopf._values.reviews": (
        "Headers SSLPeer UserInfo WebhookClientConfig WebhookClientConfigService WebhookFn WebhookServerProtocol"
    ),
    "kopf._values.selectors": "EVERYTHING",
    "kopf._values.version": "__version__ __version_tuple__",
    "kopf.on": "convert daemon index reconcile register subhandler timer",
}
"""The names by their modules: the same as the imports above, which are for type checkers and editors."""

_MODULES = {"on": "kopf.on", "lifecycles": "kopf._handlers.lifecycles"}
"""The names of modules."""

_LEGACY = ("_cogs", "_core")
"""Private packages of the original framework, which are available without an import."""


class _FormerModules:
    """Finds private modules of the original framework, if no other modules have their names; until 3.0."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(("kopf._cogs", "kopf._core", "kopf._kits.")):
            return None
        found: ModuleSpec | None = importlib.import_module("kopf._legacy.former_modules").find_spec(name)
        return found


sys.meta_path.append(_FormerModules)

_HOMES_BY_NAMES = {name: module for module, names in _HOMES.items() for name in names.split()}


if not typing.TYPE_CHECKING:  # type checkers know all the names, and must complain about all others

    def __getattr__(name: str) -> object:
        """Import a name on its first use; after that, Python finds it by itself."""
        if name in _HOMES_BY_NAMES:
            value = getattr(importlib.import_module(_HOMES_BY_NAMES[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(_MODULES[name])
        elif name in _LEGACY:
            return importlib.import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
