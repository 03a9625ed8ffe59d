from __future__ import annotations

from kopf._controller.pausing import Pause


def test_it_is_on_as_long_as_anybody_holds_it() -> None:
    pause, changes = Pause(), list[bool]()
    pause.subscribe(lambda: changes.append(pause.is_on))
    states = [pause.is_on]
    for key in ("a", "b", "a"):
        pause.hold(key, f"held by {key}")
        states.append(pause.is_on)
    for key in ("a", "a", "b", "b"):
        pause.release(key)
        states.append(pause.is_on)
    assert states == [False, True, True, True, True, True, False, False]
    assert changes == [True, False]


def test_reasons() -> None:
    pause = Pause()
    pause.hold("a", "one")
    pause.hold("b", "two")
    pause.hold("a", "three")
    assert list(pause.reasons) == ["three", "two"]
    pause.release("a")
    assert list(pause.reasons) == ["two"]


def test_some_objects_are_held_while_the_operator_goes_on() -> None:
    pause, changes = Pause(), list[tuple[bool, bool]]()
    pause.on_partial.append(lambda: changes.append((pause.is_held("a1"), pause.is_held("b1"))))
    pause.hold_some(lambda key: key.startswith("a"))
    pause.hold_some(lambda key: key == "b1")
    pause.hold_some(None)
    assert changes == [(True, False), (False, True), (False, False)]
    assert not pause.is_on
