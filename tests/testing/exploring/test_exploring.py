"""Exploring finds the classic bugs that are planted, each with a script that repeats it; and none in what is right."""

from __future__ import annotations

import gc
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import kopf
from kopf.testing import FaultRule, Report, Simulation, SimulationError, explore, walk_schema
from tests.testing.exploring import sites, stories

ROOT = pathlib.Path(__file__).parent.parent.parent.parent

BUGS: list[tuple[Callable[..., Report], str, str]] = [
    (stories.create_then_record.exploration.explore, "crash", "default/one-<2>: it is there, but must not be"),
    (stories.stale_view.exploration.explore, "view", "default/one-<2>: it is there, but must not be"),
    (stories.losing_a_child.exploration.explore, "downtime", 'data.size is "1", but must be "2"'),
    (stories.missing_finalizer.exploration.explore, "deletion", "one=2 is left after the deletion"),
    (stories.endless_retry.exploration.explore, "lost answer", "build' never ends: called 15 times"),
    (stories.forgetting_a_field.walk.explore, "change and back", 'data.theme is "light", but must be absent'),
]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where scripts are executed by those who copy them


@pytest.mark.parametrize(("explore", "kind", "difference"), BUGS)
def test_bugs_are_found_and_repeated(explore: Callable[..., Report], kind: str, difference: str) -> None:
    failure = next(trial for trial in explore().failures if trial.kind == kind)
    assert any(difference in line for line in failure.differences)
    with pytest.raises(AssertionError) as caught:
        exec(compile(failure.script, "script", "exec"), {})
    assert str(caught.value).splitlines() == [*failure.differences]


def test_nothing_is_found_in_what_is_right_and_all_kinds_take_turns() -> None:
    report = stories.right.exploration.explore()
    report.check()
    assert len({trial.kind for trial in report.trials[:11]}) == 11
    assert report.omitted > 30


def test_no_walk_fails_if_it_is_right() -> None:
    stories.right_site()


def test_scripts_run_alone() -> None:
    failure = stories.losing_a_child.exploration.explore(only="downtime at step 2").failures[0]
    run = subprocess.run([sys.executable, "-"], input=failure.script, text=True, capture_output=True, check=False)
    assert run.returncode == 1
    assert "the operator crashes" in run.stdout
    assert all(line in run.stderr for line in failure.differences)


def test_failures_are_explained() -> None:
    report = stories.losing_a_child.exploration.explore()
    with pytest.raises(AssertionError) as caught:
        report.check()
    text = str(caught.value)
    assert text.startswith("1 of 4 did not converge: downtime at step 2\n\ntrouble ")
    assert re.search(r"^downtime +4 +3 +1$", text, re.MULTILINE)
    assert "the operator crashes\n" in text
    assert "import runpy" in text


@explore(registry=sites.make_operator(), **stories.OPTIONS, troubles=["crash"])
def story_in_plain_python(simulation: Any) -> None:
    sites.dns.clear()
    simulation.apply(sites.SITE)
    simulation.settle()


def test_regular_functions_are_explored() -> None:
    report = story_in_plain_python.exploration.explore(runs=3)
    names = [trial.name for trial in report.trials]
    assert names == ["crash after write 1", "crash before write 1", "crash after write 2"]
    assert report.omitted > 0
    assert not report.failures


def test_garbage_is_looked_for_rarely_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def observe() -> dict[str, Any]:
        seen.append((gc.get_threshold()[0], count()))
        return {}

    usual, count, before = gc.get_threshold(), gc.get_freeze_count, gc.get_freeze_count()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # otherwise, it is decided already
    try:
        story_in_plain_python.exploration.explore(runs=1, observe=observe)
        assert (gc.get_threshold(), count()) == (usual, 0)
    finally:
        gc.freeze()
    threshold, frozen = seen[-1]
    assert threshold > usual[0]
    assert frozen > before


def test_time_is_limited() -> None:
    report = stories.right.exploration.explore(seconds=0)
    assert len(report.trials) == 1


@pytest.mark.simulation(registry=sites.make_operator("endless retry"), crds=sites.CRD)
async def story_with_mark(simulation: Simulation) -> None:
    sites.dns.clear()
    await simulation.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one-page"}})
    await simulation.apply(sites.SITE)


def test_options_are_taken_from_the_mark_and_endless_stories_are_refused() -> None:
    with pytest.raises(SimulationError, match="does not settle even without trouble: handler .*build.* never ends"):
        explore()(story_with_mark)()


@explore(registry=sites.make_operator(), **stories.OPTIONS)
async def failing_story(simulation: Simulation) -> None:
    await simulation.apply(sites.SITE)
    await simulation.expect("sites", "one", field="status.page", within=10)


restless = kopf.OperatorRegistry()


@kopf.timer("sites", interval=30, registry=restless)
async def beat(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    patch.status["beats"] = status.get("beats", 0) + 1


@kopf.on.event("sites", registry=restless)
async def look(**_: Any) -> None:
    pass


@explore(registry=restless, crds=sites.CRD, troubles=["crash", "deletion"], runs=4, ignore=["status.beats"])
async def restless_story(simulation: Simulation) -> None:
    await simulation.apply(sites.SITE)
    await simulation.settle()


def test_timers_may_never_rest() -> None:
    restless_story()


looping = kopf.OperatorRegistry()


@kopf.on.event("sites", registry=looping)
async def follow(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    patch.status["seen"] = status.get("seen", 0) + 1


@explore(registry=looping, crds=sites.CRD)
async def looping_story(simulation: Simulation) -> None:
    await simulation.apply(sites.SITE)


def test_changes_for_ever_are_noticed() -> None:
    with pytest.raises(SimulationError, match="endlessly reacts to its own changes"):
        looping_story()


def test_stories_must_pass_without_trouble() -> None:
    with pytest.raises(AssertionError, match="sites.v1.example.com default/one is not as expected in 10 seconds"):
        failing_story()


def test_bad_use_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown troubles: earthquake"):
        explore(troubles=["earthquake"])(stories.tell)
    with pytest.raises(TypeError, match=r"a list, even for one item: troubles=\['crash'\]"):
        explore(troubles="crash")(stories.tell)
    with pytest.raises(SimulationError, match="nothing to explore: .* that crash could disturb"):
        explore(troubles=["crash"], registry=kopf.OperatorRegistry(), crds=sites.CRD)(stories.tell)()
    with pytest.raises(TypeError, match="needs an argument for the simulation"):
        explore()(lambda: None)
    for decorate in (explore, walk_schema):
        with pytest.raises(TypeError, match="needs parentheses"):
            decorate(stories.tell)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="There is no variant 'nosuch'. There are: crash after write 1"):
        story_in_plain_python.exploration.explore(only="nosuch")
    with pytest.raises(ValueError, match="There is no walk 'nosuch'"):
        stories.right_site.walk.explore(only="nosuch")


def test_ignored_kinds_and_fields_are_not_compared() -> None:
    explored = stories.create_then_record.exploration
    assert explored.explore(ignore=["configmaps", "status.page"]).failures == []


@walk_schema(registry=sites.make_operator())
def unknown_object() -> dict[str, Any]:
    return sites.SITE


def test_walks_need_definitions() -> None:
    with pytest.raises(Exception, match="resource type"):
        unknown_object()


@pytest.mark.simulation(registry=sites.make_operator(), crds=sites.CRD)
async def test_moments_are_counted(simulation: Simulation) -> None:
    seen: list[str] = []
    simulation.when(step=2, do=lambda: seen.append(f"step {simulation.now:g}"))
    simulation.when(change=1, do=lambda: seen.append("change"))
    simulation.when(write=1, do=lambda: FaultRule(status=403))
    await simulation.apply(sites.SITE)
    await simulation.advance(seconds=5)
    assert seen == ["change"]
    await simulation.patch("sites", "one", {"spec": {"size": 3}})
    assert seen == ["change", "step 5"]
    with pytest.raises(TypeError, match="Give exactly one moment"):
        simulation.when(do=lambda: None)
    with pytest.raises(ValueError, match="counted from 1"):
        simulation.when(step=0, do=lambda: None)


@pytest.mark.simulation(registry=sites.make_operator(), crds=sites.CRD)
async def test_failed_appointments_are_told(simulation: Simulation) -> None:
    async def fail() -> None:
        raise LookupError("lost")

    simulation.when(step=1, do=fail)
    with pytest.raises(SimulationError, match="lost"):
        await simulation.apply(sites.SITE)


@explore(registry=sites.make_operator(), **stories.OPTIONS, runs=2)
async def test_explored_functions_are_tests(simulation: Simulation) -> None:
    await stories.tell(simulation)


def test_runs_are_repeatable() -> None:
    def crash(simulation: Simulation) -> None:
        simulation.crash_after(write=3, restart=True)

    first, second = (stories.right.exploration.run(crash) for _ in range(2))
    assert first.journal == second.journal
    assert first == second
