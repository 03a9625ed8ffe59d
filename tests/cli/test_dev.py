from __future__ import annotations

import functools
import importlib.metadata
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest
import yaml

import kopf
from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE, Starter
from tests.patience import PATIENCE
from tests.ports import find_free_port

ARGS = ["handlers.py", "--apply", "crd.yaml", "--apply", "obj.yaml"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    return tmp_path


def save(path: pathlib.Path, text: str) -> None:
    """Save in one step, so that it is one change: a half of it could be seen on a busy machine."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text)
    draft.replace(path)


def test_from_nothing_to_a_handled_object(start: Starter, folder: pathlib.Path, kubectl: str) -> None:
    with start("dev", *ARGS) as process:
        process.wait_for("Applied crd.yaml: CustomResourceDefinition kopfexamples.kopf.dev$")
        process.wait_for("Applied obj.yaml: KopfExample default/kopf-example-1$")
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        kubeconfig = process.wait_for("For a second terminal:   export KUBECONFIG=(.+)$")[1]
        result = subprocess.run(
            [kubectl, f"--kubeconfig={kubeconfig}", "delete", "kex", "kopf-example-1"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert "deleted" in result.stdout
        process.wait_for("Goodbye, kopf-example-1!")


ADMITTED = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=0)
    settings.admission.managed = {managed!r}

@kopf.on.mutate("kopfexamples")
def mutate_fn(patch, **_):
    patch.spec["mutated"] = True

@kopf.on.validate("kopfexamples")
def validate_fn(name, **_):
    if name == "bad":
        raise kopf.AdmissionError("It is bad.")

@kopf.on.create("kopfexamples")
def create_fn(spec, name, logger, **_):
    logger.info(f"{{name}} is mutated: {{spec.get('mutated')}}")
"""


CONVERTED = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", port=0)
    settings.admission.managed = "auto.kopf.dev"

@kopf.convert("kopfexamples.kopf.dev", "v2", "v1")
@kopf.convert("kopfexamples.kopf.dev", "v1", "v2")
def convert(obj):
    obj["spec"]["converted"] = True
    return obj

@kopf.on.create("kopfexamples.v1.kopf.dev")
def create_fn(spec, name, logger, **_):
    logger.info(f"{name} is converted: {spec.get('converted')}")
"""


def test_objects_are_applied_when_they_can_be_converted(start: Starter, folder: pathlib.Path) -> None:
    (folder / "handlers.py").write_text(CONVERTED)
    [definition] = yaml.safe_load_all((folder / "crd.yaml").read_text())
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    (folder / "crd.yaml").write_text(yaml.safe_dump(definition))
    obj = (folder / "obj.yaml").read_text().replace("kopf.dev/v1", "kopf.dev/v2")
    (folder / "obj.yaml").write_text(obj)
    with start("dev", *ARGS) as process:
        process.wait_for("is converted: True")


def test_objects_are_applied_when_the_webhooks_are_published(start: Starter, folder: pathlib.Path) -> None:
    (folder / "handlers.py").write_text(ADMITTED.format(managed="auto.kopf.dev"))
    good = (folder / "obj.yaml").read_text()
    (folder / "obj.yaml").write_text(f"{good}\n---\n{good.replace('kopf-example-1', 'bad')}")
    with start("dev", *ARGS) as process:
        process.wait_for("Applied crd.yaml: CustomResourceDefinition kopfexamples.kopf.dev$")
        process.wait_for("Applied obj.yaml: KopfExample default/kopf-example-1$")
        process.wait_for("Cannot apply obj.yaml: admission webhook .* denied the request: It is bad.")
        process.wait_for("kopf-example-1 is mutated: True")
        assert process.output.index("Reconfiguring the validating webhook") < process.output.index("Applied obj.yaml")
        # From now on, all files are applied at once, through the webhooks, too.
        save(folder / "obj.yaml", good.replace("kopf-example-1", "another"))
        process.wait_for("another is mutated: True")


def test_objects_do_not_wait_for_webhooks_that_are_not_published(start: Starter, folder: pathlib.Path) -> None:
    (folder / "handlers.py").write_text(ADMITTED.format(managed=None))
    with start("dev", *ARGS, KOPF_TEST_PUBLISHING_TIMEOUT="0.5") as process:
        process.wait_for("The operator did not publish its webhooks in time. The objects are applied without them.")
        process.wait_for("kopf-example-1 is mutated: None")


def test_objects_wait_until_the_operator_is_mended(start: Starter, folder: pathlib.Path) -> None:
    good = (folder / "handlers.py").read_text()
    (folder / "handlers.py").write_text("syntax error(")
    with start("dev", *ARGS) as process:
        process.wait_for("The operator has exited.")
        assert "Applied obj.yaml" not in process.output
        save(folder / "handlers.py", good)
        process.wait_for("Applied obj.yaml: KopfExample default/kopf-example-1$")
        process.wait_for("Hello, kopf-example-1!")


ROLES = """
{apiVersion: v1, kind: ServiceAccount, metadata: {name: operator}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [{kind: ServiceAccount, namespace: default, name: operator}]
"""


def test_operators_are_limited_by_their_roles(start: Starter, folder: pathlib.Path, kubectl: str) -> None:
    name = "system:serviceaccount:default:operator"
    (folder / "rbac.yaml").write_text(ROLES % "view")
    args = "--apply=rbac.yaml", "--authorization=rbac", f"--as={name}", f"--user={name}={folder / 'operator.yaml'}"
    with start("dev", *ARGS, *args) as process:
        process.wait_for("Applied rbac.yaml: ClusterRoleBinding operators$")
        process.wait_for(f'User "{name}" cannot .*kopfexamples')
        result = subprocess.run(
            [kubectl, "--kubeconfig=operator.yaml", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
            cwd=folder,
        )
        assert result.stdout == name


def test_the_kubeconfig_is_at_the_same_place_for_a_project(
    start: Starter, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for signum in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):  # one of them leaves the file behind
        with start("dev", "handlers.py", "--apply", "crd.yaml") as process:
            kubeconfig = pathlib.Path(process.wait_for("export KUBECONFIG=(.+)$")[1])
            found.append(kubeconfig)
            assert kubeconfig.stat().st_mode & 0o777 == 0o600
            if signum == signal.SIGTERM:
                with start("dev", "handlers.py", log="other.log") as other:  # the first one keeps it
                    assert other.wait_for("export KUBECONFIG=(.+)$")[1] != str(kubeconfig)
                    other.send_signal(signum)
                    assert other.wait() == 0
            process.wait_for("authentication has finished")
            children = psutil.Process(process.pid).children()
            process.send_signal(signum)
            process.wait()
            for child in children:
                if child.is_running():
                    child.kill()
        assert kubeconfig.exists() is (signum == signal.SIGKILL)
    assert len(set(found)) == 1
    assert found[0].parent == folder / ".kube" / "kopf-dev"  # the folder is the home here
    assert found[0].name.startswith(f"{folder.name}-")


def test_names_of_folders_can_have_any_bytes(start: Starter, folder: pathlib.Path) -> None:
    odd = folder / os.fsdecode(b"caf\xe9")  # in an old encoding
    odd.mkdir()
    (folder / "handlers.py").rename(odd / "handlers.py")
    with start("dev", *ARGS[1:], str(odd / "handlers.py")) as process:
        process.wait_for("Hello, kopf-example-1!")
        save(odd / "handlers.py", (odd / "handlers.py").read_text().replace("Hello", "Bye"))
        process.wait_for("Changed: .*handlers.py. Reloading the operator.")
        process.wait_for("authentication has finished", times=2)


def test_no_home_is_needed(start: Starter, folder: pathlib.Path) -> None:
    (folder / "file").touch()
    with start("dev", "handlers.py", HOME=str(folder / "file")) as process:
        assert str(folder) not in process.wait_for("export KUBECONFIG=(.+)$")[1]


@pytest.mark.parametrize("how", ["ctrl-c", "SIGINT", "SIGTERM"])
def test_stopping_leaves_nothing_behind(start: Starter, folder: pathlib.Path, how: str) -> None:
    with start("dev", *ARGS) as process:
        process.wait_for("Creation is processed")
        kubeconfig = pathlib.Path(process.wait_for("export KUBECONFIG=(.+)$")[1])
        [child] = psutil.Process(process.pid).children()
        if how == "ctrl-c":
            process.press_ctrl_c()
        else:
            process.send_signal(signal.Signals[how])
        assert process.wait() == 0
        assert "Everything is stopped." in process.output
        assert "Traceback" not in process.output
        assert not child.is_running()
        assert not kubeconfig.exists()


STUCK = """
import time, kopf

@kopf.on.cleanup()
async def cleanup_fn(logger, **_):
    logger.info("cleaned up")

@kopf.on.create('kopfexamples')
{kind} create_fn(logger, **_):
    logger.info('stuck')
    time.sleep(1000)
"""


@pytest.mark.parametrize("is_group", [True, False])
def test_the_stop_is_graceful(start: Starter, folder: pathlib.Path, is_group: bool) -> None:
    """Also if Ctrl+C has come to the operator already: it must not be told twice, which is to end at once."""
    (folder / "handlers.py").write_text(STUCK.format(kind="def"))
    with start("dev", *ARGS) as process:
        process.wait_for("stuck$")
        [child] = psutil.Process(process.pid).children()
        process.press_ctrl_c() if is_group else process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert "Handler 'create_fn' does not end, so it is abandoned" in process.output
        assert "cleaned up" in process.output
        assert "and is killed" not in process.output
        assert not child.is_running()


def test_stuck_operators_are_killed_by_the_second_ctrl_c(start: Starter, folder: pathlib.Path) -> None:
    (folder / "handlers.py").write_text(STUCK.format(kind="async def"))
    with start("dev", *ARGS) as process:
        process.wait_for("stuck$")
        [child] = psutil.Process(process.pid).children()
        process.press_ctrl_c()
        process.wait_for("The operator is still stopping; after 120 seconds, it is killed. Ctrl\\+C kills it at once.$")
        assert child.is_running()
        process.press_ctrl_c()
        assert process.wait() == 0
        assert not child.is_running()


def test_blocked_event_loops_are_noticed_soon(start: Starter, folder: pathlib.Path) -> None:
    blocking = "while not os.path.exists('go'): time.sleep(0.01)"
    code = (
        STUCK.format(kind="async def").replace("import time", "import os, time").replace("time.sleep(1000)", blocking)
    )
    (folder / "handlers.py").write_text(code)
    with start("dev", *ARGS) as process:
        match = process.wait_for(
            r"The event loop is blocked for ([\d.]+) seconds by the handler 'create_fn', create_fn\(\) at "
            r".*handlers.py:11: while not "
        )
        assert float(match[1]) < 1.5
        (folder / "go").touch()
        process.wait_for("The event loop works again")


def test_reloading(start: Starter, folder: pathlib.Path) -> None:
    handlers = folder / "handlers.py"
    source = handlers.read_text()
    with start("dev", *ARGS) as process:
        process.wait_for("Hello, kopf-example-1!")
        process.wait_for("Creation is processed")

        # A broken file does not end anything, and is waited to be mended.
        save(handlers, f"{source}\nsyntax error(")
        process.wait_for("Changed: handlers.py. Reloading the operator.$")
        process.wait_for("Cannot load 'handlers.py': there is a syntax error.$")
        process.wait_for("The operator has exited. It starts again when the files change.$")

        # A file that was not there yet can be what was missing.
        save(folder / "neighbour.py", "print('The neighbour is loaded.', flush=True)\n")
        process.wait_for("Changed: (handlers.py, )?neighbour.py. Reloading the operator.$")
        process.wait_for("The operator has exited. It starts again when the files change.$", times=2)

        # The same cluster, the same object, but the new code.
        save(handlers, source + "\nimport neighbour\n")
        process.wait_for("The neighbour is loaded.$")
        save(folder / "obj.yaml", (folder / "obj.yaml").read_text().replace("1m", "2m"))
        process.wait_for("Applied obj.yaml", times=2)
        process.wait_for("change: spec.duration: '1m' -> '2m'$")

        # The imported files are watched, too.
        save(folder / "neighbour.py", "print('The neighbour has changed.', flush=True)\n")
        process.wait_for("Changed: (handlers.py, )?neighbour.py. Reloading the operator.$", times=2)
        process.wait_for("The neighbour has changed.$")
        assert process.output.count("Hello, kopf-example-1!") == 1


MODEL = """
import dataclasses
import kopf

@dataclasses.dataclass
class Spec:
    field: int = 0

class Thing(kopf.CustomResource[Spec, Spec], group="example.com", version="v1"): ...

@kopf.on.event(Thing)
def fn(**_): ...
"""


def test_models_are_defined_at_each_reload(start: Starter, tmp_path: pathlib.Path, kubectl: str) -> None:
    """What is refused can be cured by a deletion; and whatever else was done to the definitions meanwhile."""
    handlers = tmp_path / "handlers.py"
    handlers.write_text(MODEL)
    with start("dev", "handlers.py") as process:
        kubeconfig = process.wait_for("For a second terminal:   export KUBECONFIG=(.+)$")[1]
        process.wait_for("Applied the models: CustomResourceDefinition things.example.com$")
        process.wait_for("ready: 1 handler, watching things.example.com/v1 ")
        save(handlers, MODEL.replace('"v1"', '"v1", scope="Cluster"'))
        process.wait_for("Cannot apply the models: .* field is immutable")
        process.wait_for("ready: 1 handler", times=2)
        command = [kubectl, f"--kubeconfig={kubeconfig}", "delete", "crd", "things.example.com"]
        subprocess.run(command, check=True, timeout=PATIENCE)
        save(handlers, MODEL.replace('"v1"', '"v1", scope="Cluster"') + "\n")
        process.wait_for("Applied the models: CustomResourceDefinition things.example.com$", times=2)
        process.wait_for("ready: 1 handler, watching things.example.com/v1 ", times=3)
        save(handlers, MODEL.replace('"v1"', '"v1", scope="Cluster"') + "\n\n")
        process.wait_for("ready: 1 handler, watching things.example.com/v1 ", times=4)
        assert process.output.count("Applied the models") == 2
        subprocess.run(command, check=True, timeout=PATIENCE)
        process.wait_for("No resource is found for plural='things'")
        save(handlers, MODEL)
        process.wait_for("Applied the models: CustomResourceDefinition things.example.com$", times=3)


def test_broken_manifests_are_reported_and_can_be_mended(start: Starter, folder: pathlib.Path) -> None:
    good = (folder / "obj.yaml").read_text()
    (folder / "obj.yaml").write_text("kind: [")
    with start("dev", *ARGS) as process:
        process.wait_for("Cannot apply obj.yaml: ")
        process.wait_for("authentication has finished")
        (folder / "obj.yaml").write_text(good.replace("KopfExample", "Unknown"))
        process.wait_for('Cannot apply obj.yaml: .*no matches for kind "Unknown"')
        (folder / "obj.yaml").write_text(
            yaml.dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(good)]})
        )
        process.wait_for("Applied obj.yaml: KopfExample default/kopf-example-1$")
        process.wait_for("Hello, kopf-example-1!")


def test_options_of_the_operator_are_passed_through(start: Starter, folder: pathlib.Path) -> None:
    with start("dev", *ARGS, "-q", "--log-format", "plain", "-m", "handlers") as process:
        process.wait_for("The operator is started")
        assert process.stop() == 0
        assert "INFO" not in process.output


def test_metrics(start: Starter, folder: pathlib.Path) -> None:
    url = f"http://127.0.0.1:{find_free_port()}/metrics"
    with start("dev", *ARGS, f"--metrics={url}") as process:
        process.wait_for(f"The metrics: +{url}")
        process.wait_for("Creation is processed")
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:
            assert b"kopf_handler_duration_seconds" in response.read()


@functools.cache
def list_imports_of_libraries() -> set[str]:
    """Whatever the framework and its dependencies import on some system, with some versions of others."""
    wanted, names = {"kopf"}, set()
    pending, sources = ["kopf"], [*pathlib.Path(kopf.__file__).parent.rglob("*.py")]
    while pending:
        try:
            distribution = importlib.metadata.distribution(pending.pop())
        except importlib.metadata.PackageNotFoundError:
            continue
        required = {
            re.split(r"[^\w.-]", item, maxsplit=1)[0]
            for item in distribution.requires or ()
            if "extra == 'test'" not in item and 'extra == "test"' not in item
        }
        pending += required - wanted
        wanted |= required
        files = [file for file in distribution.files or () if file.suffix == ".py"]
        # What is generated in the clients is megabytes, and all of it imports the same.
        files = [file for file in files if not {"api", "models"} & {*file.parts}]
        sources += [pathlib.Path(str(file.locate())) for file in files]
    for source in sources:
        names.update(re.findall(r"^[ \t]*(?:import|from) (\w+)", source.read_text(errors="replace"), re.MULTILINE))
    assert {"aiodns", "brotli", "brotlicffi", "aiohttp", "yaml"} <= names
    return (names | {"uvloop", "pykube"}) - {"neighbour", "own"}


@pytest.mark.parametrize("command", ["dev", "run"])
def test_files_that_are_named_as_libraries(
    start: Starter,
    folder: pathlib.Path,
    cluster: LocalCluster,
    command: str,
) -> None:
    """They are for those who import them, and the framework does not."""
    installed = importlib.metadata.packages_distributions().keys()
    for name in sys.stdlib_module_names | installed | list_imports_of_libraries():
        if name.isidentifier():
            (folder / f"{name}.py").write_text("import os\nos.write(2, b'It is executed.')\nraise RuntimeError\n")
    (folder / "neighbour.py").write_text("TEXT = 'It has started.'\n")
    (folder / "own.py").write_text(
        "import kopf\n"
        "@kopf.on.startup()\n"
        "def startup_fn(logger, settings, **_):\n"
        "    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', port=0)\n"
        "    from neighbour import TEXT\n"
        "    logger.info(TEXT)\n"
        "@kopf.on.validate('configmaps')\n"
        "def validate(**_):\n"
        "    pass\n"
        "@kopf.on.event('namespaces')\n"
        "def seen(logger, **_):\n"
        "    logger.info('It is seen.')\n"
        "    raise ValueError\n"
    )
    options = ["--all-namespaces", "--liveness=http://127.0.0.1:0/healthz"]
    with start(command, "own.py", *options, kubeconfig=cluster.kubeconfig if command == "run" else None) as process:
        process.wait_for("It has started.")
        process.wait_for("It is seen.")
        assert "It is executed." not in process.output


def test_there_is_nothing_to_run(start: Starter, folder: pathlib.Path) -> None:
    (folder / "handlers.py").unlink()
    with start("dev") as process:
        assert process.wait() == 2
        assert "Nothing to run" in process.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nosuch.py"], "There is no such file: 'nosuch.py'."),
        (["no/such.py"], "There is no such file: 'no/such.py'."),
        (["handler.py"], "There is no such file: 'handler.py'. Did you mean 'handlers.py'?"),
        (["handlers.py", "--nosuch"], "No such option"),
        (["handlers.py", "--apply", "nonexistent.yaml"], "'nonexistent.yaml' does not exist"),
    ],
)
def test_commands_that_make_no_sense(start: Starter, folder: pathlib.Path, args: list[str], message: str) -> None:
    with start("dev", *args) as process:
        assert process.wait() == 2
        assert message in process.output
        assert "The local cluster is up" not in process.output
