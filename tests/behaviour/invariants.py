"""
What must be true whatever has happened, once everything has calmed down: the promises of the framework.

Each function yields the violations, in plain words.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sized
from typing import Any

from tests.behaviour.objects import FINALIZER, Obj, get_essence, get_finalizers, get_progress
from tests.behaviour.plans import CHANGING, INTERVAL, LEAK, OWN, Call, Plan, get_state
from tests.behaviour.world import World

SLACK = 20.0
"""How late a timer may be, in seconds."""


def find_unhandled(world: World, objects: list[Obj]) -> Iterator[str]:
    """Every final state is handled, and its handlers have seen it."""
    for obj in alive(objects):
        plans = [plan for plan in world.plans if plan.kind in CHANGING and plan.matches(obj)]
        essence = get_essence(obj)
        if plans and (essence is None or get_state(essence) != get_state(obj) or get_progress(obj)):
            yield f"{describe(obj)} is not handled: {obj['metadata']}"
        if plans:
            yield from find_unseen(world, obj, plans)


def drop_own(state: Any) -> Any:
    """What the handlers change within a handling cycle, belongs to that cycle: the others do not have to see it."""
    if not isinstance(state, dict):
        return state
    return {key: drop_own(value) for key, value in state.items() if not key.startswith(OWN)}


def find_unseen(world: World, obj: Obj, plans: list[Plan]) -> Iterator[str]:
    """The last states that the handlers have seen are the final ones."""
    states = list_essences(world, obj)
    for plan in plans:
        calls = [call for call in get_final_calls(world, plan, obj) if call.id == plan.id]
        state = plan.get_state(obj)
        is_updated = plan.filter == "none" and len(list_changes([plan.get_state(past) for past in states])) > 1
        if plan.kind in ("change", "parent") or (plan.kind in ("update", "field") and is_updated):
            if not calls or drop_own(calls[-1].state) != drop_own(state):
                yield f"{describe(obj)} is not seen by {plan.id} as {state!r}, but {[call.state for call in calls]!r}"
        elif plan.kind in ("status", "deep") and plan.filter == "none":
            seen = calls[-1].state if calls else plan.get_state({})  # there is no status in the beginning
            if seen != state:
                yield f"{describe(obj)} is not seen by {plan.id} as {state!r}, but {[call.state for call in calls]!r}"
        elif plan.kind == "create" and plan.filter == "none" and not calls:
            yield f"{describe(obj)} is not seen by {plan.id} at all"
        elif plan.kind == "resume" and plan.filter == "none":
            born_in, _ = world.born[obj["metadata"]["uid"]]
            if born_in < len(world.lives) - 1 and not any(call.life == len(world.lives) - 1 for call in calls):
                yield f"{describe(obj)} is not resumed by {plan.id}"


def find_repetitions(world: World) -> Iterator[str]:
    """No handler runs again for the same change once its end is recorded on the object."""
    versions = list_versions(world)
    calls: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in world.journal:
        if call.plan.kind in CHANGING and not (call.plan.kind == "parent" and call.plan.id == call.id):
            calls[call.id, call.uid].append(call)
    for (id, uid), items in calls.items():
        for index, earlier in enumerate(items):
            recorded = find_record(versions[uid], earlier) if earlier.is_final else None
            for later in items[index + 1 :]:
                if later.life == earlier.life and later.version < earlier.version:
                    yield f"{id} sees an older state: {later!r} after {earlier!r}"
            for later in items[index + 1 :] if earlier.is_final else ():
                since = earlier.version if later.life == earlier.life else recorded
                if since is not None and is_repetition(world, versions[uid], earlier, later, since):
                    yield f"{id} runs again: {later!r} after {earlier!r}, which is recorded at {recorded}"


def find_record(versions: dict[int, Obj], call: Call) -> int | None:
    """In which version of the object it is first seen that the call has ended."""
    for version, obj in versions.items():
        record = get_progress(obj).get(call.id.replace("/", "."))
        is_recorded = record is not None and (record.get("success") or record.get("failure"))
        is_same = record is not None and record.get("purpose") == call.reason
        handled = get_essence(obj)
        is_handled = handled is not None and call.plan.get_state(handled) == call.state and call.plan.id == call.id
        is_over = is_handled and call.reason in ("create", "update")
        if version > call.version and ((is_recorded and is_same) or is_over):
            return version
    return None


def is_repetition(world: World, versions: dict[int, Obj], earlier: Call, later: Call, since: int) -> bool:
    """Whether it is a call for the same change, which is known to be handled since that version."""
    if later.plan.kind == "resume":
        return later.life == earlier.life
    if later.reason != earlier.reason or later.version < since:
        return False
    if later.reason in ("create", "delete"):
        return True
    between = [obj for version, obj in versions.items() if since <= version <= later.version]
    if later.state != earlier.state or not all(later.plan.get_state(obj) == later.state for obj in between):
        return False
    # The version with the record has the status of that very patch, too; whether it is new, is seen by those before it.
    return not is_status_updated(world, [v for n, v in versions.items() if earlier.version <= n <= later.version])


def is_status_updated(world: World, versions: list[Obj]) -> bool:
    """
    Tell if the status has essentially changed, in the eyes of all handlers: if any of them is for it, or a part of it.

    Others can change it at any time. What the handlers add to it belongs to their cycle, except for the very last patch
    of it, which brings the new last handled state: that one is as of before the patch, so it is an update afterwards.
    """
    states = [get_watched_status(world, obj) for obj in versions]
    if None in states and {} in states:
        # Others have removed from the status what was not there, which makes an empty one; the handlers never do that.
        return True
    if len({json.dumps(get_foreign(state), sort_keys=True) for state in states}) > 1:
        return True
    essences = [get_essence(obj) for obj in versions]
    for index in range(1, len(versions)):
        if essences[index] is not None and essences[index] != essences[index - 1]:
            handled = get_watched_status(world, essences[index])
            # With the subresource, the status is patched first, and the rest is patched then.
            if handled != states[index] and handled in states[max(0, index - 2) : index]:
                return True
    return False


def get_watched_status(world: World, obj: Obj) -> Any:
    """What of the status the handlers are for."""
    kinds, status = {plan.kind for plan in world.plans}, obj.get("status")
    if "status" in kinds:
        return status
    return {"deep": {"one": ((status or {}).get("deep") or {}).get("one")}} if "deep" in kinds else {}


def get_foreign(status: Obj | None) -> Obj:
    """What of the status does not come from the handlers."""
    return {key: value for key, value in (status or {}).items() if key in ("foreign", "deep")}


def find_wrong_finalizers(world: World, objects: list[Obj]) -> Iterator[str]:
    """Our finalizer is on the objects that somebody needs it for, and on no others."""
    for obj in alive(objects):
        blocking = [plan for plan in world.plans if plan.blocks_deletion and plan.matches(obj)]
        if blocking and all(plan.can_be_over for plan in blocking):
            continue  # it is needed only for as long as they run
        if bool(blocking) != (FINALIZER in get_finalizers(obj)):
            yield f"{describe(obj)} {'needs' if blocking else 'does not need'} the finalizer: {obj['metadata']}"


def find_touched(world: World, objects: list[Obj]) -> Iterator[str]:
    """What belongs to others is as they have left it."""
    for obj in objects:
        expected = world.expected[obj["metadata"]["name"]]
        state = {
            stanza: {key: value for key, value in fields.items() if not key.startswith(OWN)}
            for stanza, fields in get_state(obj).items()
        }
        actual = {
            "uid": obj["metadata"]["uid"],
            **state,
            "finalizers": [f for f in get_finalizers(obj) if f != FINALIZER],
            "status": {key: value for key, value in obj.get("status", {}).items() if key in ("foreign", "deep")},
        }
        if actual != expected:
            yield f"{describe(obj)} is touched: {actual!r} instead of {expected!r}"


def find_wrong_background(world: World, objects: list[Obj], now: float) -> Iterator[str]:
    """The daemons and timers of the matching objects run, those of all others do not."""
    life = world.lives[-1]
    running = {key for key, count in life.daemons.items() if count}
    wanted = {
        (plan.id, obj["metadata"]["uid"])
        for plan in world.plans
        if plan.kind == "daemon" and "permanent" not in plan.script and plan.retries is None
        for obj in alive(objects)
        if plan.matches(obj)
    }
    ids = {plan.id for plan in world.plans if "permanent" in plan.script or plan.retries is not None}
    if wanted ^ {key for key in running if key[0] not in ids}:
        yield f"these daemons run: {running}, but these must: {wanted}"
    for overlap in (overlap for life in world.lives for overlap in life.overlaps):
        yield f"a daemon runs twice: {overlap}"
    for plan in (plan for plan in world.plans if plan.kind == "quitter"):
        # When the filters match anew, or the pause is over, it is started again.
        if plan.filter == "none" and world.peering is None:
            for life in world.lives:
                for (id, uid), count in life.starts.items():
                    if id == plan.id and count > 1:
                        yield f"{id} is started {count} times for {uid}, though it had exited on its own"
    for plan in (plan for plan in world.plans if plan.kind == "timer"):
        if "permanent" not in plan.script and plan.retries is None:
            yield from find_wrong_timers(world, plan, objects, now)


def find_leaks(world: World) -> Iterator[str]:
    """What handlers do to the values they were given, is seen by nobody but those who get the same raw event."""
    is_shared = any(plan.kind == "event" and plan.effect == "leak" for plan in world.plans)
    seen = (call for call in world.journal if not (is_shared and call.plan.kind == "event"))
    yield from (f"{call!r} sees what another handler has done" for call in seen if LEAK in repr(call.state))
    spoiled = (obj for _, obj in world.objects.history if LEAK in json.dumps(obj))
    yield from (
        f"{describe(obj)} has what a handler has done to its arguments: {obj}" for obj in itertools.islice(spoiled, 1)
    )


def find_wrong_timers(world: World, plan: Plan, objects: list[Obj], now: float) -> Iterator[str]:
    times = {call.uid: call.time for call in world.journal if call.plan is plan}
    for obj in alive(objects):
        is_running = now - times.get(obj["metadata"]["uid"], 0) <= INTERVAL + SLACK
        if is_running != plan.matches(obj):
            yield f"{plan.id} {'runs' if is_running else 'does not run'} for {describe(obj)}"


def find_unnoticed(world: World, objects: list[Obj]) -> Iterator[str]:
    """The handlers of raw events have seen the last versions; the indices have them."""
    for plan in world.plans:
        matching = [obj for obj in objects if plan.matches(obj)]
        if plan.kind == "event":
            seen = {call.uid: call.version for call in world.journal if call.plan is plan}
            for obj in matching:
                if seen.get(obj["metadata"]["uid"], 0) < int(obj["metadata"]["resourceVersion"]):
                    yield f"{plan.id} has not seen the last version of {describe(obj)}"
        elif plan.kind == "index" and plan.id in world.lives[-1].indices:
            index = {key: list(values) for key, values in world.lives[-1].indices[plan.id].items()}
            wanted = {obj["metadata"]["name"]: [obj["spec"]["x"]] for obj in matching}
            if index != wanted:
                yield f"{plan.id} has {index} instead of {wanted}"


def find_remembered(world: World) -> Iterator[str]:
    """Nothing is kept in memory when no objects exist."""
    for controller in world.controllers:
        background = controller.background
        contents: dict[str, Sized] = {
            "objects": [*controller.objects],
            "handled": controller.objects.handled._kept,
            "memos": controller.scope.runtime.memos,
            "queue": controller.queue,
            "backgrounds": background.objects if background is not None else (),
            "workers": controller.workers._tasks,
        }
        for what, things in contents.items():
            if len(things) > 0:
                yield f"{what} of gone objects are in memory: {things}"
    for name, index in world.lives[-1].indices.items():
        if len(index) > 0:
            yield f"{name} is not empty: {index}"


def alive(objects: list[Obj]) -> list[Obj]:
    return [obj for obj in objects if "deletionTimestamp" not in obj["metadata"]]


def describe(obj: Obj) -> str:
    return f"{obj['metadata']['name']} ({obj['metadata']['uid'][:8]})"


def list_essences(world: World, obj: Obj) -> list[Any]:
    """All last handled states that the object ever had."""
    states = (
        get_essence(past)
        for past in world.objects.get_history(obj["metadata"]["name"])
        if past["metadata"]["uid"] == obj["metadata"]["uid"]
    )
    return [state for state in states if state is not None]


def list_changes(items: list[Any]) -> list[Any]:
    return [item for previous, item in zip([None, *items], items, strict=False) if item != previous]


def get_final_calls(world: World, plan: Plan, obj: Obj) -> list[Call]:
    uid = obj["metadata"]["uid"]
    return [call for call in world.journal if call.plan is plan and call.uid == uid and call.is_final]


def list_versions(world: World) -> dict[str, dict[int, Obj]]:
    """All versions of all objects, by their uids."""
    versions: dict[str, dict[int, Obj]] = defaultdict(dict)
    for _, obj in world.objects.history:
        versions[obj["metadata"]["uid"]][int(obj["metadata"]["resourceVersion"])] = obj
    return versions
