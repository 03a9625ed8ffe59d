"""What is promised to the users: the names they import. Everything behind an underscore may change."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import pathlib
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import kopf
import kopf.cli
import kopf.on
import kopf.testing
import kopf_cluster
from tests.patience import PATIENCE

# The names of the original framework: existing operators import them.
EXPECTED: dict[ModuleType, str] = {
    kopf: """
        on lifecycles subhandler register execute daemon timer index configure LogFormat login_via_pykube
        login_via_client login_via_async_client login_with_kubeconfig login_with_service_account LoginError
        ConnectionInfo AiohttpSession event info warn exception spawn_tasks run_tasks operator run adopt label
        harmonize_naming adjust_namespace not_ all_ any_ none_ get_default_lifecycle set_default_lifecycle
        build_object_reference build_owner_reference append_owner_reference remove_owner_reference ErrorsMode
        AdmissionError WebhookClientConfigService WebhookClientConfig Operation UserInfo Headers SSLPeer WebhookFn
        WebhookServerProtocol WebhookServer WebhookK3dServer WebhookMinikubeServer WebhookDockerDesktopServer
        WebhookNgrokTunnel WebhookAutoServer WebhookAutoTunnel PermanentError TemporaryError HandlerTimeoutError
        HandlerRetriesError OperatorRegistry get_default_registry set_default_registry PRESENT ABSENT
        OperatorSettings DiffBaseStorage AnnotationsDiffBaseStorage StatusDiffBaseStorage MultiDiffBaseStorage
        ProgressRecord ProgressStorage AnnotationsProgressStorage StatusProgressStorage MultiProgressStorage
        SmartProgressStorage RawEventType RawEvent RawBody Status Spec Meta Body BodyEssence Labels Annotations
        ObjectReference OwnerReference Memo Index Store Logger ObjectLogger LocalObjectLogger FieldSpec FieldPath
        Diff DiffItem DiffOperation HandlerId Reason Patch PatchFn DaemonStopped DaemonStoppingReason
        SyncDaemonStopperChecker AsyncDaemonStopperChecker Resource EVERYTHING
    """,
    kopf.on: """
        startup cleanup login probe validate mutate resume create update delete field index event daemon timer
        subhandler register
    """,
    kopf.testing: "KopfRunner",
    kopf.lifecycles: "all_at_once one_by_one randomized shuffled asap",
    kopf.cli: "CLIControls main",
}

# Those that the original framework does not have, or does not promise.
ADDED: dict[ModuleType, str] = {
    kopf: """
        DeclarationError WebhookServiceServer __version__ __version_tuple__
        ConditionList CustomResource Duration ModelMismatchError Quantity Rule Schema
        OperatorError ActivityError ApplyConflictError Condition apply conditions exponential fencing_token needs
        Activity Stopped SyncStopped
        ForeignObjectError NotReadyError is_ready reconcile ref require_ready
        convert
        APIError APIClientError APIServerError APIUnauthorizedError APIForbiddenError APINotFoundError
        APIConflictError APIGoneError APIPayloadTooLargeError APIUnsupportedMediaTypeError APIUnprocessableError
        APITooManyRequestsError APINetworkError
    """,
    kopf.on: "convert reconcile",
    kopf.testing: """
        APIStatus LocalCluster Simulation SimulationError SyncSimulation simulate
        HandlerRun LogLine ReportedEvent run_handler run_handler_async
        check_conversions explore walk_schema delete_created Exploration FaultRule FinalState Report SchemaWalk Trial
        replay Replay Divergence RecordingError
    """,
}

FACES = [kopf, kopf.on, kopf.testing]
PUBLIC_MODULES = {"kopf.on", "kopf.testing", "kopf.cli"}

modules = pytest.mark.parametrize("module", FACES, ids=lambda module: module.__name__)


def get_names(table: dict[ModuleType, str], module: ModuleType) -> set[str]:
    return set(table.get(module, "").split())


@pytest.mark.parametrize("module", EXPECTED, ids=lambda module: module.__name__)
def test_names_of_the_original_framework_exist(module: ModuleType) -> None:
    assert {name for name in get_names(EXPECTED, module) if not hasattr(module, name)} == set()


@modules
def test_exactly_the_promised_names_are_exported(module: ModuleType) -> None:
    assert {*module.__all__} == get_names(EXPECTED, module) | get_names(ADDED, module)


@modules
def test_exported_names_exist_and_are_listed_once(module: ModuleType) -> None:
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(module.__all__) == len(set(module.__all__))
    namespace: dict[str, Any] = {}
    exec(f"from {module.__name__} import *", namespace)
    assert namespace.keys() - {"__builtins__"} == set(module.__all__)


@modules
def test_nothing_public_is_forgotten_in_the_lists(module: ModuleType) -> None:
    functions = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    assert functions <= set(module.__all__)


def test_nothing_else_is_seen_in_the_main_module() -> None:
    assert {
        name
        for name, value in vars(kopf).items()
        if not name.startswith("_") and name not in kopf.__all__ and not inspect.ismodule(value)
    } - {"annotations"} == set()


@modules
def test_everything_public_is_documented(module: ModuleType) -> None:
    values = {name: getattr(module, name) for name in module.__all__}
    described = {
        name: inspect.getdoc(value)
        for name, value in values.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.partition(".")[0] == "kopf"
    }
    assert described
    assert [name for name, doc in described.items() if not doc] == []


def list_members(cls: type) -> dict[str, object]:
    """List the methods and properties of the class itself."""
    members = {name: getattr(value, "__func__", value) for name, value in vars(cls).items() if not name.startswith("_")}
    return {name: value for name, value in members.items() if inspect.isfunction(value) or isinstance(value, property)}


@pytest.mark.parametrize("module", [*FACES, kopf_cluster], ids=lambda module: module.__name__)
def test_every_public_method_and_property_is_documented(module: ModuleType) -> None:
    classes = [value for name in module.__all__ if inspect.isclass(value := getattr(module, name))]
    members = [(cls, name) for cls in classes if cls.__module__.startswith("kopf") for name in list_members(cls)]
    assert len(members) > 10 or module is kopf.on
    assert [f"{cls.__qualname__}.{name}" for cls, name in members if not inspect.getdoc(getattr(cls, name))] == []


def read_static_imports() -> dict[str, set[str]]:
    """Read what type checkers and editors see in the main module, by the modules it comes from."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(pathlib.Path(kopf.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("kopf"):
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def test_names_are_the_same_for_type_checkers_and_at_run_time() -> None:
    static = {f"{module}.{name}" for module, names in read_static_imports().items() for name in names}
    lazy = {f"{module}.{name}" for module, names in kopf._HOMES.items() for name in names.split()}
    assert static == lazy | {*kopf._MODULES.values()}
    assert {name.rpartition(".")[2] for name in static} == set(kopf.__all__)


def test_all_names_are_listed_before_they_are_used() -> None:
    code = "import kopf; assert {*dir(kopf)} >= {*kopf.__all__}; assert 'WebhookServer' not in vars(kopf)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


# --- the package as a whole ---

ALL_MODULES = sorted(
    info.name for info in pkgutil.walk_packages(kopf.__path__, "kopf.") if not info.name.endswith("__main__")
)


def test_all_else_is_behind_an_underscore() -> None:
    public = {name for name in ALL_MODULES if not any(part.startswith("_") for part in name.split("."))}
    assert {name for name in public if not name.startswith("kopf.cli.")} == PUBLIC_MODULES


def test_modules_of_the_names_can_be_imported_first() -> None:
    """Which of them is the first one, depends on what is used first."""
    names = sorted({*kopf._HOMES, *kopf._MODULES.values()})
    code = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "kopf"]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code, *names], check=True, timeout=PATIENCE)


def test_every_module_tells_what_it_is_for() -> None:
    modules = [importlib.import_module(name) for name in ALL_MODULES]
    assert [module.__name__ for module in modules if not (module.__doc__ or "").strip()] == []
    exported = [(module, name) for module in modules for name in getattr(module, "__all__", [])]
    assert [(module.__name__, name) for module, name in exported if not hasattr(module, name)] == []


def test_the_version_is_known() -> None:
    version, parts = kopf.__version__, kopf.__version_tuple__
    assert version == importlib.metadata.version("kopf")
    assert isinstance(parts, tuple)
    assert list(map(str, parts[:2])) == version.split(".")[:2]


def test_importing_the_framework_does_not_load_what_is_not_needed_in_production() -> None:
    unneeded = [
        "kopf_cluster",
        "kopf.testing",
        "kopf.cli",
        "aiohttp.web",
        "click",
        "cryptography",
        "kubernetes",
        "pyngrok",
        "pykube",
        "uvloop",
    ]
    code = f"import kopf, sys; kopf.on, kopf.operator; print([name for name in {unneeded!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert result.stdout.strip() == "[]"
