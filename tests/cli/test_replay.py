"""``kopf run --record`` and ``kopf replay`` as users start them: an incident in a cluster becomes a test."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import re
import signal
import stat
import time

import pytest

import kopf
from kopf._replay.format import read_entries
from kopf._replay.replay import Replay
from kopf.testing import replay
from kopf_cluster import LocalCluster
from tests.cli.conftest import Starter
from tests.patience import PATIENCE
from tests.recording.reading import read_all

HANDLERS = """
import asyncio, base64, random, time
import kopf

passwords = []

@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = [0.1, 0.2, 0.4]
    settings.persistence.consistency_timeout = 0.5

@kopf.on.event("secrets")
async def secret_fn(body, **_):
    passwords.extend(base64.b64decode(value).decode() for value in body.get("data", {}).values())

@kopf.on.create("kopfexamples")
def create_fn(retry, name, patch, **_):
    time.sleep(0.01)
    if not retry and name.endswith("1"):
        raise kopf.TemporaryError("Not yet.", delay=0.2)
    patch.status["lucky"] = random.randrange(1000)
    patch.status["url"] = f"postgres://host/{passwords[-1]}"
    return {"size": 1}

@kopf.on.update("kopfexamples")
async def update_fn(logger, spec, **_):
    await asyncio.sleep(0.15)  # so that something is underway whenever the beginning of a recording is dropped
    logger.info(f"Updated to {spec.get('step')}.")

# Not for those that are deleted: whether another tick begins just before that, is known to nobody.
@kopf.timer("kopfexamples", interval=0.3, when=lambda name, **_: name.startswith("obj"))
async def timer_fn(patch, **_):
    patch.status["ticked"] = random.randrange(1000)
"""
PASSWORD = "never-to-be-seen-42"
SAME, DIVERGED, UNUSABLE = 0, 1, 2
FAILED = 1


def make(name: str) -> dict[str, object]:
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": {}}


def make_trouble(cluster: LocalCluster) -> None:
    """For the operator only."""
    cluster.faults.inject(status=500, rate=0.15, agent="kopf/")
    cluster.faults.inject(action="lose-answer", method="PATCH", rate=0.1, agent="kopf/")
    cluster.faults.drop_watches_every(0.7)


def record(
    start: Starter,
    cluster: LocalCluster,
    *options: str,
    signum: signal.Signals,
    steps: int = 2,
    calm_steps: int = 0,
) -> None:
    """Record an incident: objects come and change in trouble, until the operator is stopped or killed."""
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "stringData": {"password": PASSWORD},
        }
    )
    with start(
        "run",
        "-A",
        "--standalone",
        "--record",
        "recording",
        "--record-random",
        *options,
        "handlers.py",
        kubeconfig=cluster.kubeconfig,
        KOPF_RUN_VERBOSE="true",
    ) as process:
        process.wait_for("Handler 'secret_fn' is invoked|secret_fn.*succeeded")
        make_trouble(cluster)
        names = ["gone0", "gone1", *(f"obj{n}" for n in range(6))]
        for name in names:
            cluster.apply(make(name))
        for name in names:
            cluster.wait_for("kopfexamples", name, lambda obj: "lucky" in obj.get("status", {}), timeout=PATIENCE)
        for step in range(steps):
            for n in range(6):
                cluster.patch("kopfexamples", f"obj{n}", {"spec": {"step": step}})
            process.wait_for(rf"Updated to {step}\.", times=6)
        if calm_steps:
            cluster.faults.clear()
        for step in range(steps, steps + calm_steps):
            ticks = len(re.findall("Timer 'timer_fn' succeeded", process.output))
            process.wait_for("Timer 'timer_fn' succeeded", times=ticks + 6 * 5)  # 1.5 seconds
            for n in range(6):
                cluster.patch("kopfexamples", f"obj{n}", {"spec": {"step": step}})
            process.wait_for(rf"Updated to {step}\.", times=6)
        for n in range(2):
            cluster.delete("kopfexamples", f"gone{n}")
        size = pathlib.Path("recording").stat().st_size
        while pathlib.Path("recording").stat().st_size == size:  # all until now is there, it is not only begun
            time.sleep(0.05)
        process.send_signal(signum)
        process.wait()


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    return tmp_path


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_an_incident_is_replayed(
    start: Starter,
    cluster: LocalCluster,
    folder: pathlib.Path,
    signum: signal.Signals,
) -> None:
    record(start, cluster, signum=signum)
    with start("replay", "recording", "handlers.py") as process:
        assert process.wait() == SAME, process.output
    assert "The operator behaves as recorded." in process.output
    assert ("The end of the recording is missing" in process.output) == (signum == signal.SIGKILL)

    (folder / "changed.py").write_text(HANDLERS.replace('"size": 1', '"size": 2'))
    with start("replay", "recording", "changed.py", log="changed.log") as process:
        assert process.wait() == DIVERGED, process.output
    assert "kopfexamples.kopf.dev default/obj0" in process.output
    assert "status.create_fn.size: 1 -> 2" in process.output

    with start("replay", "--json", "recording", "changed.py", log="json.log") as process:
        assert process.wait() == DIVERGED
    report = json.loads(process.output)
    assert not report["same"]
    assert {"time", "kind", "place", "text", "details"} == {*report["divergences"][0]}

    check_secrets(folder / "recording", cluster)
    check_journal(replay(folder / "recording", folder / "handlers.py"), has_end=signum == signal.SIGTERM)


def check_secrets(recording: pathlib.Path, cluster: LocalCluster) -> None:
    content = read_all(recording)
    kubeconfig = cluster.kubeconfig.read_text()
    tokens = [line.split()[-1] for line in kubeconfig.splitlines() if "token:" in line or "-data:" in line]
    assert tokens
    for secret in [PASSWORD, "Authorization", "PRIVATE KEY", *tokens]:
        assert secret.encode() not in content
    assert b"postgres://host/redacted-" in content
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


def check_journal(result: Replay, *, has_end: bool) -> None:
    """It is a test in pytest, too."""
    assert not result.divergences, str(result)
    for n, id in itertools.product(range(6), ["create_fn", "update_fn", "timer_fn"]):
        calls, recorded = (
            [(call.reason, call.retry, call.outcome) for call in journal.get_calls(id, name=f"obj{n}")]
            for journal in (result.journal, result.recorded_journal)
        )
        assert calls
        if id == "timer_fn" or not has_end:  # the last call can be just before the signal, or just after
            assert abs(len(calls) - len(recorded)) <= 1
            calls, recorded = calls[: len(recorded)], recorded[: len(calls)]
        assert calls == recorded
    assert result.journal.get_calls("create_fn", name="obj1")[-1].retry > 0


def test_the_latest_of_a_large_recording_is_replayed(
    start: Starter,
    cluster: LocalCluster,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kopf._replay.comparison._WARM_UP", 1.0)
    record(start, cluster, "--record-limit", "50Ki", signum=signal.SIGTERM, steps=12, calm_steps=3)
    assert (folder / "recording").stat().st_size < 65 * 1024
    result = replay(folder / "recording", folder / "handlers.py")
    # Nobody knows what was underway at the checkpoint, so objects that change all the time can get out of step.
    assert len({item.place for item in result.divergences}) <= 3, str(result)
    assert result.checkpoint is not None
    assert len(result.recorded_journal.get_calls("update_fn")) > 5
    assert "as after a restart of the operator" in str(result)

    changed = HANDLERS.replace("    await asyncio.sleep(0.15)", "    raise kopf.PermanentError('No.')")
    (folder / "changed.py").write_text(changed)
    result = replay(folder / "recording", folder / "changed.py")
    assert len({item.place for item in result.divergences if item.kind == "outcome"}) >= 5


def test_random_numbers_of_the_process_are_its_own_again() -> None:
    before = random.random
    with pytest.raises(kopf.testing.RecordingError):
        replay("nosuch", registry=kopf.OperatorRegistry())
    assert random.random is before
    assert time.sleep.__module__ == "time"


def test_unwritable_files_are_refused(start: Starter, folder: pathlib.Path) -> None:
    with start("run", "-A", "--record", "nosuch/recording", "handlers.py") as process:
        assert process.wait() == FAILED
    assert "'nosuch/recording' cannot be written: No such file or directory." in process.output


@pytest.mark.parametrize("size", ["much", "0", "1Ti", "-1", "1.5Mi", ""])
def test_sizes_must_be_sizes(start: Starter, size: str) -> None:
    with start("run", "-A", "--record", "recording", f"--record-limit={size}", "handlers.py") as process:
        assert process.wait() == UNUSABLE
    assert "is not a size" in process.output
    assert not os.path.exists("recording")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nosuch", "handlers.py"], "No such file or directory"),
        (["handlers.py", "handlers.py"], "has no readable entries"),
        (["recording"], "No handlers for the replay"),
        (["recording", "nosuch.py"], "there is no such file"),
        (["recording", "broken.py"], "No way."),
        ([], "Missing argument"),
    ],
)
def test_unusable_recordings_and_handlers(start: Starter, folder: pathlib.Path, args: list[str], message: str) -> None:
    (folder / "broken.py").write_text("raise ValueError('No way.')")
    with start("replay", *args) as process:
        assert process.wait() == UNUSABLE
    assert message in process.output


def test_options_of_the_operator_are_recorded(start: Starter, cluster: LocalCluster, folder: pathlib.Path) -> None:
    with start(
        "run",
        "-n",
        "default",
        "-n",
        "other-*",
        "--priority",
        "7",
        "--leader-election",
        "--record",
        "recording",
        "handlers.py",
        kubeconfig=cluster.kubeconfig,
    ) as process:
        process.wait_for("secret_fn|Default peering object is not found")
        assert process.stop() == 0
    options = read_entries(folder / "recording")[0][0].fields["options"]
    assert options["namespaces"] == ["default", "other-*"]
    assert options["priority"] == 7
    assert options["coordination"] == "leader"
    assert replay(folder / "recording", folder / "handlers.py")
