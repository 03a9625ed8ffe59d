from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import urllib.request
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import kopf
from kopf._client.auth.vault import Vault
from kopf._handlers.registry import OperatorRegistry
from kopf.cli import CLIControls, main
from kopf_cluster import LocalCluster
from tests.cli.conftest import EXAMPLE, Starter
from tests.forging import Forge
from tests.patience import PATIENCE

OBJ = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "obj1"}, "spec": {"duration": "1m"}}

HANDLERS = str(EXAMPLE / "handlers.py")


def get_run() -> click.Command:
    command = main.get_command(click.Context(main), "run")
    assert command is not None
    return command


@pytest.fixture
def cluster(cluster: LocalCluster) -> LocalCluster:
    """The same cluster, with an object to be handled."""
    cluster.apply(OBJ)
    return cluster


@pytest.mark.loops
def test_operator_handles_objects_until_stopped(start: Starter, cluster: LocalCluster) -> None:
    with start("run", "-A", "--standalone", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        process.wait_for(r"\[default/obj1\] Hello, obj1! Your duration is 1m.")
        cluster.apply({**OBJ, "metadata": {"name": "obj2"}})
        process.wait_for(r"\[default/obj2\] Hello, obj2! Your duration is 1m.")
        process.wait_for("Creation is processed: 1 succeeded; 0 failed.")
        assert process.stop() == 0
        assert "Traceback" not in process.output


def test_interrupts_stop_the_operators_that_scripts_have_started_in_the_background(
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
) -> None:
    """Shells start such commands with SIGINT ignored."""
    command = f"{shlex.quote(sys.executable)} -m kopf run -A --standalone {shlex.quote(HANDLERS)}"
    waiting = "until grep -q 'authentication has finished' log; do sleep 0.1; done"
    script = f"{command} >log 2>&1 & {waiting}; kill -INT $!; wait $!"
    with subprocess.Popen(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        start_new_session=True,
    ) as shell:
        try:
            assert shell.wait(timeout=PATIENCE) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert "Signal SIGINT is received. Operator is stopping." in (tmp_path / "log").read_text()


@pytest.mark.loops
def test_second_signal_stops_the_operator_at_once(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "stuck.py").write_text(
        "import time, kopf\n"
        "@kopf.on.create('kopfexamples')\n"
        "def create_fn(logger, **_):\n"
        "    logger.info('stuck')\n"
        "    time.sleep(1000)\n"
    )
    with start("run", "stuck.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("stuck$")
        process.press_ctrl_c()
        process.wait_for("SIGINT is received")
        process.press_ctrl_c()
        assert process.wait() == 128 + signal.SIGINT


@pytest.mark.loops
def test_hung_handlers_do_not_hold_the_exit(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    """They are waited for as long as configured; then the process ends, with the threads being what they are."""
    (tmp_path / "stuck.py").write_text(
        "import threading, kopf\n"
        "@kopf.on.startup()\n"
        "def startup_fn(settings, **_):\n"
        "    settings.queueing.exit_timeout = 0.5\n"
        "@kopf.on.create('kopfexamples')\n"
        "def create_fn(logger, **_):\n"
        "    logger.info('stuck')\n"
        "    threading.Event().wait()\n"
        "@kopf.daemon('kopfexamples', cancellation_timeout=0.1)\n"
        "def daemon_fn(logger, **_):\n"
        "    logger.info('stuck')\n"
        "    threading.Event().wait()\n"
    )
    with start("run", "--standalone", "stuck.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("stuck$", times=2)
        process.press_ctrl_c()
        assert process.wait() == 0
        assert "Traceback" not in process.output


@pytest.mark.loops
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_cleanup_handlers_are_called_when_stopped_by_signals(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    signum: signal.Signals,
) -> None:
    (tmp_path / "handlers.py").write_text(
        "import asyncio, kopf\n"
        "@kopf.on.cleanup()\n"
        "async def cleanup_fn(logger, **_):\n"
        "    await asyncio.sleep(0.1)\n"
        "    logger.info('It is clean.')\n"
    )
    with start("run", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("authentication has finished")
        process.send_signal(signum)
        assert process.wait() == 0
        assert "It is clean." in process.output


@pytest.mark.loops
@pytest.mark.parametrize("how", ["cleanup", "blocked"])
def test_the_last_resort_to_exit(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path, how: str) -> None:
    for timeout in ("0.5", "5", "50"):  # until the machine is fast enough to get to the handler
        (tmp_path / "stuck.py").write_text(
            "import asyncio, time, kopf\n"
            "@kopf.on.startup()\n"
            "def startup_fn(settings, **_):\n"
            f"    settings.process.ultimate_exiting_timeout = {timeout}\n"
            "@kopf.on.cleanup()\n"
            "async def cleanup_fn(**_):\n"
            "    print('It is stuck.', flush=True)\n"
            f"    {'time.sleep(1000)' if how == 'blocked' else 'await asyncio.sleep(1000)'}\n"
        )
        with start("run", "--standalone", "stuck.py", kubeconfig=cluster.kubeconfig) as process:
            process.wait_for("authentication has finished")
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 128 + signal.SIGTERM
            assert f"has not exited in {timeout} seconds since the signal. The process ends by force." in process.output
        if "It is stuck." in process.output:
            break
    assert "It is stuck." in process.output
    assert ("in cleanup_fn" in process.output) == (how == "blocked")  # those who wait are in no stack


@pytest.mark.loops
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_hung_servers_do_not_hold_the_exit(start: Starter, tmp_path: pathlib.Path, scheme: str) -> None:
    """The server accepts connections and never says anything: neither an answer nor a handshake."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kubeconfig = tmp_path / "kubeconfig.yaml"
        write_kubeconfig(kubeconfig, f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        with start("run", "--standalone", HANDLERS, kubeconfig=kubeconfig) as process:
            process.wait_for("authentication has finished")
            connection, _ = server.accept()
            with connection:
                assert connection.recv(10)
                process.press_ctrl_c()
                assert process.wait() == 0
            assert "Traceback" not in process.output


def write_kubeconfig(path: pathlib.Path, url: str) -> None:
    path.write_text(
        json.dumps(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": url}}],
                "users": [{"name": "x", "user": {"token": "x"}}],
            }
        )
    )


def test_options_by_environment_variables(start: Starter, cluster: LocalCluster) -> None:
    env = {"KOPF_RUN_LOG_FORMAT": "json", "KOPF_RUN_LOG_REFKEY": "ref", "KOPF_RUN_NAMESPACE": "default other"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    with start("run", HANDLERS, kubeconfig=cluster.kubeconfig, **env) as process:
        process.wait_for('"Creation is processed')
        assert process.stop() == 0
        lines: list[dict[str, Any]] = [json.loads(line) for line in process.output.splitlines()]
    [line] = [line for line in lines if line["message"].startswith("Hello")]
    assert line["ref"]["name"] == "obj1"
    assert line["severity"] == "info"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("KOPF_RUN_ALL_NAMESPACES", "true", {"clusterwide": True}),
        ("KOPF_RUN_CLUSTERWIDE", "true", {"clusterwide": True}),
        ("KOPF_RUN_NAMESPACE", "a b-*,!c", {"namespaces": ("a", "b-*,!c")}),
        ("KOPF_RUN_NAMESPACES", "a b", {"namespaces": ("a", "b")}),
        ("KOPF_RUN_STANDALONE", "yes", {"standalone": True}),
        ("KOPF_RUN_PEERING", "x", {"peering_name": "x"}),
        ("KOPF_RUN_PEERING_NAME", "x", {"peering_name": "x"}),
        ("KOPF_RUN_PRIORITY", "123", {"priority": 123}),
        ("KOPF_RUN_DEV", "1", {"dev": True}),
        ("KOPF_RUN_LIVENESS", "http://:1/", {"liveness_endpoint": "http://:1/"}),
        ("KOPF_RUN_LIVENESS_ENDPOINT", "http://:1/", {"liveness_endpoint": "http://:1/"}),
        ("KOPF_RUN_MODULE", "a.b c", {"modules": ("a.b", "c")}),
        ("KOPF_RUN_VERBOSE", "1", {"verbose": True}),
        ("KOPF_RUN_DEBUG", "1", {"debug": True}),
        ("KOPF_RUN_QUIET", "1", {"quiet": True}),
        ("KOPF_RUN_LOG_FORMAT", "json", {"log_format": kopf.LogFormat.JSON}),
        ("KOPF_RUN_LOG_PREFIX", "false", {"log_prefix": False}),
        ("KOPF_RUN_LOG_REFKEY", "x", {"log_refkey": "x"}),
        ("KOPF_RUN_LOG_CONFIG", __file__, {"log_config": pathlib.Path(__file__)}),
    ],
)
def test_every_option_has_a_variable(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setenv(name, value)
    context = get_run().make_context("run", [], auto_envvar_prefix="KOPF_RUN")
    [(key, parsed)] = expected.items()
    assert context.params[key] == parsed


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-A"], {"clusterwide": True}),
        (["-n", "a", "--namespace=b"], {"namespaces": ("a", "b")}),
        (["-L", "http://:1/"], {"liveness_endpoint": "http://:1/"}),
        (["-P", "x", "-p", "1"], {"peering_name": "x", "priority": 1}),
        (["-m", "a", "--module=b", "c.py"], {"modules": ("a", "b"), "paths": ("c.py",)}),
        (["-v"], {"verbose": True}),
        (["-d"], {"debug": True}),
        (["-q"], {"quiet": True}),
        (["--no-log-prefix"], {"log_prefix": False}),
        (["--log-prefix"], {"log_prefix": True}),
        ([], {"log_prefix": None, "standalone": None, "priority": None, "dev": False, "clusterwide": False}),
    ],
    ids=str,
)
def test_options_as_known_to_users(args: list[str], expected: dict[str, Any]) -> None:
    params = get_run().make_context("run", [*args]).params
    assert {key: params[key] for key in expected} == expected


def test_files_and_modules_together(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "package1").mkdir()
    (tmp_path / "package2").mkdir()
    paths = ["file1.py", "file2.py", "package1/module1.py", "package2/module2.py"]
    for path in paths:
        name = pathlib.Path(path).stem
        (tmp_path / path).write_text(f"import kopf\n@kopf.on.create('kopfexamples')\ndef {name}_fn(**_):\n    pass\n")
    args = ["file1.py", "file2.py", "-m", "package1.module1", "--module", "package2.module2"]
    with start("run", *args, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Creation is processed: 4 succeeded; 0 failed.")
        for path in paths:
            assert f"Handler '{pathlib.Path(path).stem}_fn' succeeded." in process.output


@pytest.mark.loops
def test_fast_event_loops_are_used_if_installed(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    loop: str,
) -> None:
    (tmp_path / "handlers.py").write_text(
        "import asyncio, kopf\n"
        "@kopf.on.startup()\n"
        "async def startup_fn(logger, **_):\n"
        "    logger.info(f'It is {type(asyncio.get_running_loop()).__module__}.')\n"
    )
    with start("run", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for(rf"It is {loop}\.")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="it is about the allocator of glibc")
@pytest.mark.parametrize(("env", "outcome"), [({}, "True"), ({"MALLOC_MMAP_THRESHOLD_": "1048576"}, "False")])
def test_big_blocks_are_given_back_when_freed_unless_the_user_has_decided(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    env: dict[str, str],
    outcome: str,
) -> None:
    """By default, glibc takes them from the heap once the first one of the size is freed, and the heap only grows."""
    (tmp_path / "handlers.py").write_text(
        textwrap.dedent("""
        import ctypes, kopf

        class Mallinfo(ctypes.Structure):
            _fields_ = [(name, ctypes.c_int) for name in (
                "arena", "ordblks", "smblks", "hblks", "hblkhd",
                "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

        mallinfo = ctypes.CDLL(None).mallinfo
        mallinfo.restype = Mallinfo

        @kopf.on.startup()
        async def startup_fn(logger, **_):
            for _ in range(2):  # some fit into holes of the heap
                before = mallinfo().hblks
                blocks = [bytearray(256 * 1024) for _ in range(64)]
                count = mallinfo().hblks - before
                del blocks
            logger.info(f"They are from the system: {count > 32}.")
    """)
    )
    with start("run", "handlers.py", kubeconfig=cluster.kubeconfig, **env) as process:
        process.wait_for(f"They are from the system: {outcome}.")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("pass", "rarely, without what was there"),
        ("gc.set_threshold(701)", "as decided"),
        ("gc.disable()", "as decided"),
        ("gc.freeze()", "as decided"),
    ],
)
def test_garbage_is_looked_for_rarely_unless_the_user_has_decided(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    code: str,
    outcome: str,
) -> None:
    (tmp_path / "handlers.py").write_text(
        textwrap.dedent(f"""
        import gc, kopf

        gc.unfreeze()
        {code}
        decided = gc.isenabled(), gc.get_threshold()

        @kopf.on.startup()
        async def startup_fn(logger, **_):
            if (gc.isenabled(), gc.get_threshold()) == decided:
                logger.info("It is as decided.")
            elif gc.get_threshold()[0] > decided[1][0] and gc.get_freeze_count() > 10_000:
                logger.info("It is rarely, without what was there.")
    """)
    )
    with start("run", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for(f"It is {outcome}.")


def test_controls_for_those_who_call_it_from_python(
    cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    registry: OperatorRegistry,
) -> None:
    """They are what cannot be passed in the command line."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    settings, seen, own = kopf.OperatorSettings(), list[Any](), OperatorRegistry()
    ready, stop = threading.Event(), threading.Event()

    @kopf.on.startup(registry=own, id="startup_fn")
    async def startup_fn(settings: kopf.OperatorSettings, **_: Any) -> None:
        seen.extend([settings, asyncio.get_running_loop()])

    def call() -> None:
        with asyncio.Runner() as runner:
            vault = Vault(settings)
            credentials = kopf.login_with_kubeconfig()
            assert credentials is not None
            runner.get_loop().call_soon(lambda: vault.populate([credentials]))
            controls = CLIControls(
                ready_flag=ready, stop_flag=stop, vault=vault, registry=own, settings=settings, loop=runner.get_loop()
            )
            result = CliRunner().invoke(main, ["run", "-q"], obj=controls)
            assert result.exit_code == 0, result.output
            assert seen == [settings, runner.get_loop()]
            runner.run(close(vault))

    async def close(vault: Vault) -> None:
        assert vault.is_populated
        await vault.close()

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        future = executor.submit(call)
        assert ready.wait(PATIENCE)
        stop.set()
        future.result(PATIENCE)


@pytest.mark.parametrize(
    ("deed", "server", "texts"),
    [
        pytest.param("pass", None, ["kubeconfig"], id="no-way-to-log-in"),
        pytest.param("raise kopf.PermanentError('not today')", None, ["start_fn"], id="failed-startup"),
        pytest.param(
            "settings.networking.error_backoffs = [0.01]",
            "http://127.0.0.1:1",
            ["the cluster is unreachable: GET http://127.0.0.1:1", "KUBECONFIG"],
            id="unreachable-cluster",
        ),
    ],
)
def test_what_ends_the_operator_is_one_clear_message(
    start: Starter, tmp_path: pathlib.Path, deed: str, server: str | None, texts: list[str]
) -> None:
    (tmp_path / "handlers.py").write_text(
        f"import kopf\n@kopf.on.startup()\ndef start_fn(settings, **_):\n    {deed}\n"
    )
    kubeconfig = tmp_path / "kubeconfig.yaml"
    if server is not None:
        write_kubeconfig(kubeconfig, server)
    with start("run", "handlers.py", kubeconfig=kubeconfig) as process:
        assert process.wait() == 1
        assert "Traceback" not in process.output
        [line] = [line for line in process.output.splitlines() if "CRITICAL" in line]
    for text in ["kopf.cli             [CRITICAL] The operator cannot go on: ", *texts]:
        assert text in line


# ------------------------------------------------------------------ what ends before anything is started


def invoke(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["run", *args])
    assert "Traceback" not in result.output
    return result.exit_code, result.stderr


def test_no_handlers_declared(registry: OperatorRegistry, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "some_file.py"
    path.write_text("import kopf")
    code, output = invoke(str(path))
    assert code == 1
    assert f"There are no handlers in {path}. Declare them with decorators" in output
    assert "@kopf.on.create('kopfexamples')" in output


def test_sources_are_reported_even_if_loading_fails(registry: OperatorRegistry, tmp_path: pathlib.Path) -> None:
    (tmp_path / "some_good.py").write_text("")
    (tmp_path / "some_bad.py").write_text("import some_good\n1/0")
    result = CliRunner().invoke(main, ["run", f"--reports={tmp_path}", str(tmp_path / "some_bad.py")])
    assert result.exit_code == 1
    assert str(tmp_path.resolve() / "some_good.py") in (tmp_path / "sources").read_text().splitlines()


@pytest.mark.parametrize(
    ("args", "explanation"),
    [
        ([], "Nothing to run. Name the files with handlers, or modules with -m."),
        (["-A", "-n", "default", HANDLERS], "Either --all-namespaces or --namespace can be used, not both."),
    ],
)
def test_commands_that_make_no_sense(registry: OperatorRegistry, args: list[str], explanation: str) -> None:
    code, output = invoke(*args)
    assert code == 2
    assert explanation in output


@pytest.mark.parametrize(
    ("option", "explanation"),
    [
        ("--liveness=https://localhost:8080/", "must be of HTTP, for example: http://0.0.0.0:8080/healthz"),
        ("--liveness=http://localhost:port/", "is not a URL"),
        ("--metrics=8080", "example: http://0.0.0.0:8080/metrics"),
        ("--metrics=https://localhost:8080/metrics", "must be of HTTP, for example: http://0.0.0.0:8080/metrics"),
        ("--metrics=http://localhost:port/", "is not a URL"),
        ("--console=127.0.0.1:8090", "'127.0.0.1:8090' must be of HTTP, for example: http://0.0.0.0:8080/"),
        ("--namespace=", "The pattern of namespaces is empty"),
        ("--namespace=a,,b", "The pattern of namespaces is empty, or a part of it"),
        ("--priority=high", "'high' is not a valid integer"),
        ("--log-format=unknown", "'unknown' is not one of 'plain', 'full', 'json'"),
        ("--log-format=%(unknown", "'%(unknown' is not a format string"),
        ("--log-config=nonexistent.yaml", "File 'nonexistent.yaml' does not exist"),
        ("--unknown", "No such option"),
    ],
)
def test_bad_options(registry: OperatorRegistry, option: str, explanation: str) -> None:
    code, output = invoke(option, HANDLERS)
    assert code == 2
    assert option.partition("=")[0] in output
    assert explanation in " ".join(output.split())


# ------------------------------------------------------------------------------------------ the health, the logs


def test_liveness_endpoints(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "handlers.py").write_text("import kopf\n@kopf.on.probe()\ndef probe_fn(**_):\n    return 'fine'\n")
    env = {"KOPF_RUN_LIVENESS": "http://127.0.0.1:0/healthz", "KOPF_RUN_STANDALONE": "yes"}
    with start("run", "--verbose", "handlers.py", kubeconfig=cluster.kubeconfig, **env) as process:
        url = process.wait_for(r"Serving the health at (http://\S+)")[1]
        with urllib.request.urlopen(url) as response:
            assert json.load(response) == {"probe_fn": "fine"}
        assert process.stop() == 0


FAILING = (
    "import kopf\n"
    "def helper():\n"
    "    raise ValueError('boom')\n"
    "@kopf.on.create('kopfexamples', errors=kopf.ErrorsMode.PERMANENT)\n"
    "def create_fn(**_):\n"
    "    helper()\n"
    "@kopf.on.create('kopfexamples', errors=kopf.ErrorsMode.PERMANENT)\n"
    "async def async_fn(**_):\n"
    "    helper()\n"
)


@pytest.mark.parametrize("options", [[], ["--debug"]], ids=["normal", "debug"])
def test_tracebacks_are_of_the_users_code_unless_debugging(
    start: Starter,
    cluster: LocalCluster,
    tmp_path: pathlib.Path,
    options: list[str],
) -> None:
    (tmp_path / "handlers.py").write_text(FAILING)
    with start("run", *options, "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Creation is processed: 0 succeeded; 2 failed.")
        assert process.stop() == 0
        tracebacks = process.output.split("Traceback (most recent call last):\n")[1:]
    assert len(tracebacks) == 2
    for traceback, name in zip(tracebacks, ("create_fn", "async_fn"), strict=True):
        files = re.findall(r'^  File "(.+)", line \d+, in (\w+)$', traceback, re.MULTILINE)
        users = [(pathlib.Path(path).name, fn) for path, fn in files if "handlers.py" in path]
        assert users == [("handlers.py", name), ("handlers.py", "helper")]
        assert (len(files) > 2) == bool(options)
        assert "ValueError: boom" in traceback


def test_formats_of_ones_own(start: Starter, cluster: LocalCluster) -> None:
    options = ["--log-format", "%(levelname)s | %(message)s"]
    with start("run", *options, HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("^INFO | Initial authentication has finished")
        process.wait_for(r"^INFO \| \[default/obj1\] Hello, obj1!")


def test_logging_by_a_configuration_file(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    (tmp_path / "logging.yaml").write_text("""
        formatters:
          mine: {format: "mine: %(name)s: %(message)s"}
          ours: {"()": kopf.cli.make_formatter, log_format: json, log_refkey: ref}
        handlers:
          console: {class: logging.StreamHandler, formatter: mine}
          file: {class: logging.FileHandler, filename: file.log, formatter: ours}
        root: {level: INFO, handlers: [console, file]}
    """)
    with start("run", "--log-config=logging.yaml", HANDLERS, kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("^mine: kopf.objects: Hello, obj1!")
        assert process.stop() == 0
        assert all(line.startswith("mine: ") for line in process.output.splitlines())
    lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "file.log").read_text().splitlines()]
    [line] = [line for line in lines if line["message"].startswith("Hello")]
    assert line["ref"]["name"] == "obj1"


@pytest.mark.parametrize(
    ("content", "explanation"),
    [
        ("[1, 2", "while parsing"),
        ("text", "expected a mapping"),
        ("{handlers: {x: {class: unknown.Class}}}", "Unable to configure handler 'x' (Cannot resolve 'unknown.Class'"),
        ("{version: 3}", "Unsupported version: 3"),
    ],
)
def test_bad_configuration_files(
    registry: OperatorRegistry,
    tmp_path: pathlib.Path,
    content: str,
    explanation: str,
) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(content)
    code, output = invoke(f"--log-config={path}", HANDLERS)
    assert code == 2
    text = " ".join(output.split())
    assert "Invalid value for '--log-config'" in text
    assert explanation in text


def test_logging_configured_by_the_users_code(start: Starter, cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    """It replaces that of the command line, and does not silence the framework, even if it does so by default."""
    (tmp_path / "handlers.py").write_text(
        "import logging.config, kopf\n"
        "logging.config.dictConfig({'version': 1,\n"
        "    'formatters': {'mine': {'format': 'mine: %(message)s'}},\n"
        "    'handlers': {'mine': {'class': 'logging.StreamHandler', 'formatter': 'mine'}},\n"
        "    'root': {'level': 'INFO', 'handlers': ['mine']}})\n"
        "@kopf.on.create('kopfexamples')\n"
        "def create_fn(logger, **_):\n"
        "    logger.info('hello')\n"
    )
    with start("run", "handlers.py", kubeconfig=cluster.kubeconfig) as process:
        process.wait_for("Creation is processed")
        assert process.stop() == 0
        lines = process.output.splitlines()
    assert "mine: hello" in lines
    assert "mine: Handler 'create_fn' succeeded." in lines
    assert all(line.startswith("mine: ") for line in lines)


def test_logging_of_applications_is_left_as_it_is(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    code = (
        "import asyncio, logging.config, kopf\n"
        "logging.config.dictConfig({'version': 1,\n"
        "    'formatters': {'mine': {'format': 'mine: %(message)s'}},\n"
        "    'handlers': {'mine': {'class': 'logging.StreamHandler', 'formatter': 'mine'}},\n"
        "    'root': {'level': 'INFO', 'handlers': ['mine']}, 'disable_existing_loggers': False})\n"
        "async def main():\n"
        "    ready = asyncio.Event()\n"
        "    await kopf.operator(ready_flag=ready, stop_flag=ready)\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert "mine: Initial authentication has finished." in result.stderr.splitlines()
    assert all(line.startswith("mine: ") for line in result.stderr.splitlines())


def test_forbidden_webhook_configurations_are_explained(start: Starter, tmp_path: pathlib.Path) -> None:
    (tmp_path / "admission.py").write_text(
        textwrap.dedent("""
        import kopf

        @kopf.on.startup()
        def configure(settings, **_):
            settings.admission.server = kopf.WebhookServer(port=0)
            settings.admission.managed = "kopfexamples.kopf.dev"
            settings.scanning.disabled = True

        @kopf.on.validate("kopfexamples")
        @kopf.on.mutate("kopfexamples")
        def check(**_):
            pass
    """)
    )
    with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        cluster.write_kubeconfig(tmp_path / "jane.yaml", "jane", [])
        with start("run", str(tmp_path / "admission.py"), kubeconfig=tmp_path / "jane.yaml") as process:
            assert process.wait() == 1
    assert "The operator cannot go on: Not permitted to manage the " in process.output
    assert "Traceback" not in process.output
    assert "are not removed" not in process.output  # as they were never published


def test_missing_permissions_can_be_copied_from_the_log(start: Starter, forge: Forge, tmp_path: pathlib.Path) -> None:
    """The rules are YAML in one line of the log, and so is the command that prints all roles."""
    (tmp_path / "my handlers.py").write_text(
        "import kopf\n\n@kopf.on.create('kopf.dev', 'v1', 'kopfexamples')\ndef create_fn(**_):\n    pass\n"
    )
    args = ("run", "my handlers.py", "--namespace=ns1", "--standalone", "--log-format=json")
    with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(EXAMPLE / "crd.yaml")
        cluster.write_kubeconfig(tmp_path / "jane.yaml", "jane", [])
        with start(*args, kubeconfig=tmp_path / "jane.yaml") as process:
            process.wait_for("The operator lacks permissions")
            process.press_ctrl_c()
            process.wait()
    lines = [line for line in process.output.splitlines() if "lacks permissions" in line]
    message, command = json.loads(*lines)["message"].split(" To print all its roles: ")
    rules = [yaml.safe_load(text) for text in re.findall(r": (\[.*?}\])", message)]
    assert command == "kopf rbac --namespace=ns1 'my handlers.py'"
    printed = forge.run(*shlex.split(command)[1:], cwd=tmp_path).stdout
    assert [role["rules"] for role in yaml.safe_load_all(printed)] == rules


def test_functions_that_can_never_work_are_refused_at_once(start: Starter, tmp_path: pathlib.Path) -> None:
    """All of them in one message, before anything else is tried; indices can be declared in other files."""
    (tmp_path / "handlers.py").write_text(
        textwrap.dedent("""\
        import kopf

        @kopf.on.startup()
        def never_called(**_):
            print("called")

        @kopf.on.create('kopfexamples')
        def create_fn(spce, **_):
            pass

        @kopf.on.create('kopfexamples')
        def good_fn(some_index, **_):
            pass

        @kopf.timer('kopfexamples', interval=1)
        def timer_fn(spec):
            pass
    """)
    )
    (tmp_path / "indices.py").write_text(
        "import kopf\n\n@kopf.index('kopfexamples')\ndef some_index(**_):\n    return 1\n"
    )
    with start("run", "handlers.py", "indices.py") as process:
        assert process.wait() == 1
        assert process.output.splitlines() == [
            "Error: Some handlers cannot work as declared:",
            "  handlers.py:7: create_fn() requires 'spce', but there is no such argument for handlers of changes. "
            "Did you mean 'spec'?",
            "  handlers.py:15: timer_fn() does not accept all arguments for timers, present and future: "
            "add '**_' to its parameters.",
        ]
