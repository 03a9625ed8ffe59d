"""Versions, pages, and exact moments: all forms of a list show the same, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.conftest import MERGE
from tests.cluster.rounds.widgets import FREE_PATH, make_thing
from tests.cluster.rounds.wire import Wire

State = dict[str, int]

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete"]), st.sampled_from("abcdefgh")), min_size=1, max_size=25
)


class World:
    """The things as they are, and as they were at all the versions."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        assert wire.send("DELETE", FREE_PATH).status == 200
        self.state: State = {}
        self.version = int(wire.send("GET", FREE_PATH).json["metadata"]["resourceVersion"])
        self.history: dict[int, State] = {self.version: {}}
        self._n = 0

    def do(self, action: str, name: str) -> None:
        self._n += 1
        if action == "delete":
            answer = self._wire.send("DELETE", f"{FREE_PATH}/{name}")
            assert answer.status == (200 if name in self.state else 404)
            self.state.pop(name, None)
            version = int(self._wire.send("GET", f"{FREE_PATH}?limit=1").json["metadata"]["resourceVersion"])
        elif name in self.state:
            answer = self._wire.send("PATCH", f"{FREE_PATH}/{name}", {"spec": {"n": self._n}}, MERGE)
            version = int(answer.json["metadata"]["resourceVersion"])
            self.state[name] = self._n
        else:
            answer = self._wire.send("POST", FREE_PATH, make_thing(name, {"n": self._n}))
            version = int(answer.json["metadata"]["resourceVersion"])
            self.state[name] = self._n
        assert version > self.version if answer.status != 404 else version >= self.version
        self.version = version
        self.history[version] = dict(self.state)

    def list(self, **params: Any) -> tuple[int, State, str]:
        """Give the version, the state, and the token of the next page."""
        query = "&".join(f"{name}={quote(str(value))}" for name, value in params.items())
        answer = self._wire.send("GET", f"{FREE_PATH}?{query}")
        assert answer.status == 200, answer
        page = answer.json
        names = [item["metadata"]["name"] for item in page["items"]]
        assert names == sorted(set(names))
        version = int(page["metadata"]["resourceVersion"])
        assert all(int(item["metadata"]["resourceVersion"]) <= version for item in page["items"])
        state = {item["metadata"]["name"]: item["spec"]["n"] for item in page["items"]}
        return version, state, page["metadata"].get("continue", "")


def test_all_the_past_can_be_seen(wire: Wire) -> None:
    @given(STEPS)
    def attempt(steps: list[tuple[str, str]]) -> None:
        world = World(wire)
        for step in steps:
            world.do(*step)
        for version, state in world.history.items():
            assert world.list(resourceVersion=version, resourceVersionMatch="Exact") == (version, state, "")
            newest = world.list(resourceVersion=version, resourceVersionMatch="NotOlderThan")
            assert newest == (world.version, world.state, "")
        assert world.list() == (world.version, world.state, "")
        assert world.list(resourceVersion=0) == (world.version, world.state, "")

    attempt()


def test_pages_show_one_moment_whatever_happens_meanwhile(wire: Wire) -> None:
    @given(STEPS, STEPS, st.integers(1, 9))
    def attempt(before: list[tuple[str, str]], meanwhile: list[tuple[str, str]], limit: int) -> None:
        world = World(wire)
        for step in before:
            world.do(*step)
        moment, expected = world.version, dict(world.state)
        events = iter(meanwhile)
        seen: State = {}
        token = ""
        while True:
            version, page, token = world.list(limit=limit, **({"continue": token} if token else {}))
            assert version == moment
            assert not seen.keys() & page.keys()
            assert max(seen, default="") < min(page, default="~")
            seen |= page
            assert (len(page) == limit) or not token
            if not token:
                break
            if (event := next(events, None)) is not None:
                world.do(*event)
        assert seen == expected

    attempt()


def test_the_number_of_the_remaining_objects_is_told(wire: Wire) -> None:
    world = World(wire)
    for name in "abcdefgh":
        world.do("put", name)
    page = wire.send("GET", f"{FREE_PATH}?limit=3").json
    assert page["metadata"]["remainingItemCount"] == 5
    page = wire.send("GET", f"{FREE_PATH}?limit=3&continue={quote(page['metadata']['continue'])}").json
    assert page["metadata"]["remainingItemCount"] == 2
    page = wire.send("GET", f"{FREE_PATH}?limit=3&continue={quote(page['metadata']['continue'])}").json
    assert (page["metadata"].keys(), page["metadata"]["continue"]) == ({"continue", "resourceVersion"}, "")


def test_versions_guard_against_lost_updates(wire: Wire) -> None:
    @given(STEPS, st.data())
    def attempt(steps: list[tuple[str, str]], data: st.DataObject) -> None:
        world = World(wire)
        world.do("put", "a")
        for action, _ in steps:
            if action == "put":
                world.do("put", "a")
        current = world.version
        version = data.draw(st.sampled_from(sorted(world.history)))
        answer = wire.send(
            "PUT",
            f"{FREE_PATH}/a",
            {**make_thing("a", {"n": -1}), "metadata": {"name": "a", "resourceVersion": str(version)}},
        )
        if version == current:
            assert answer.status == 200
            assert int(answer.json["metadata"]["resourceVersion"]) > current
        else:
            assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        uid = wire.send("GET", f"{FREE_PATH}/a").json["metadata"]["uid"]
        for preconditions in (
            {"uid": "other"},
            {"resourceVersion": str(version)},
            {"uid": uid, "resourceVersion": "1"},
        ):
            answer = wire.send("DELETE", f"{FREE_PATH}/a", {"preconditions": preconditions})
            assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert wire.send("DELETE", f"{FREE_PATH}/a", {"preconditions": {"uid": uid}}).status == 200

    attempt()
