from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import kopf
from kopf._controller.memos import Memos
from kopf._handlers.causes import Deferred


def test_values_are_keys_and_attributes() -> None:
    memo = kopf.Memo(f0=0)
    memo.f1 = 100
    memo["f2"] = 200
    assert (memo.f0, memo["f1"], memo.f2) == (0, 100, 200)
    assert memo == {"f0": 0, "f1": 100, "f2": 200}
    del memo.f1
    del memo["f2"]
    assert list(memo) == ["f0"]


def test_absent_values() -> None:
    memo = kopf.Memo()
    with pytest.raises(AttributeError, match="no value 'x'"):
        _ = memo.x
    with pytest.raises(AttributeError, match="no value 'x'"):
        del memo.x
    with pytest.raises(KeyError):
        memo["x"]
    assert not hasattr(memo, "x")
    assert getattr(memo, "x", 123) == 123
    assert memo.get("x") is None


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda memo: pickle.loads(pickle.dumps(memo))])
def test_memos_can_be_copied(duplicate: Any) -> None:
    memo = kopf.Memo(x=1, y=[2])
    result = duplicate(memo)
    assert type(result) is kopf.Memo
    assert result == memo
    assert result is not memo
    result.x = 2
    assert memo.x == 1


def test_values_of_the_operator_are_not_copied_again_to_the_objects_that_were_dropped_meanwhile() -> None:
    origin = kopf.Memo(value=1)
    memos = Memos(origin)
    memos.recall("uid1")
    memos.release("uid1")
    origin.value = 2
    origin.added = True
    for _ in range(2):
        assert memos.recall("uid1") == {"value": 1}
        assert memos.recall("uid2") == {"value": 2, "added": True}
        memos.release("uid1")
        memos.release("uid2")
        assert len(memos) == 0
    memos.forget("uid1")
    assert memos.recall("uid1") == {"value": 2, "added": True}


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise TypeError("These are never compared.")

    __hash__ = None  # type: ignore[assignment]  # as in NumPy


def test_values_are_not_compared() -> None:
    memos = Memos(kopf.Memo(x=Incomparable()))
    memos.recall("uid1")
    memos.release("uid1")
    assert len(memos) == 0
    memos.recall("uid1").x = Incomparable()
    memos.release("uid1")
    assert len(memos) == 1


def test_own_values_are_kept_even_if_they_equal_to_those_of_the_operator() -> None:
    memos = Memos(kopf.Memo(items_=[]))
    own = memos.recall("uid1").items_ = []
    memos.release("uid1")
    assert memos.recall("uid1").items_ is own


def test_memos_with_nothing_new_in_them_are_not_kept() -> None:
    memos = Memos(kopf.Memo(x=1))
    memos.recall("idle")
    memos.recall("added").y = 2
    memos.recall("changed").x = 2
    del memos.recall("removed").x
    for uid in ["idle", "added", "changed", "removed", "unknown"]:
        memos.release(uid)
    assert len(memos) == 3
    assert memos.recall("added") == {"x": 1, "y": 2}
    assert memos.recall("removed") == {}


@dataclasses.dataclass
class Custom:
    value: int = 0


class Derived(kopf.Memo):
    pass


def test_memos_of_derived_classes_stay_so() -> None:
    memos = Memos(Derived(x=1))
    memo = memos.recall("uid1")
    assert type(memo) is Derived
    memos.release("uid1")
    assert memos.recall("uid1") is memo


# --- memos that are used aside of the handling: by the indexing, by the admission ---


def test_borrowed_memos_are_the_same_and_are_dropped_if_unused() -> None:
    memos = Memos(kopf.Memo(x=1))
    memo = memos.borrow("uid1")
    assert memos.borrow("uid1") is memo
    memos.give_back("uid1")
    assert len(memos) == 1
    memos.give_back("uid1")
    assert len(memos) == 0


def test_borrowed_memos_are_kept_if_something_was_put_there() -> None:
    memos = Memos(kopf.Memo())
    memo = memos.borrow("uid1")
    memo.x = 1
    memos.give_back("uid1")
    assert memos.recall("uid1") is memo


def test_memos_of_the_handled_objects_are_not_dropped_by_borrowers() -> None:
    """The handler can still put something there."""
    memos = Memos(kopf.Memo())
    memo = memos.recall("uid1")
    memos.borrow("uid1")
    memos.give_back("uid1")
    memo.x = 1
    assert memos.recall("uid1") is memo


def test_borrowed_memos_are_not_dropped_when_the_handling_is_over() -> None:
    memos = Memos(kopf.Memo())
    memo = memos.borrow("uid1")
    memos.recall("uid1")
    memos.release("uid1")
    memo.x = 1
    memos.give_back("uid1")
    assert memos.recall("uid1") is memo


def test_borrowed_memos_of_gone_objects_are_forgotten() -> None:
    memos = Memos(kopf.Memo())
    memos.borrow("uid1").x = 1
    memos.forget("uid1")
    memos.give_back("uid1")
    assert len(memos) == 0


def test_temporary_memos_belong_to_nobody() -> None:
    memos = Memos(kopf.Memo(x=1))
    memo = memos.make()
    memo.y = 2
    assert memos.make() == {"x": 1}
    assert len(memos) == 0


def test_deferred_memos_are_those_of_the_first_appearance_and_are_made_only_if_needed() -> None:
    operator_memo = kopf.Memo(value="old")
    memos = Memos(operator_memo)
    deferred = memos.defer("uid1")
    assert isinstance(deferred, Deferred)
    operator_memo.value = "new"
    assert len(memos) == 0
    assert deferred.make(deferred.key) == {"value": "old"}
    assert deferred.make(deferred.key) is memos.recall("uid1")


def test_memos_of_custom_classes_are_never_deferred() -> None:
    """They are copied by the code of users, who can expect it at the first appearance of the object."""
    memos = Memos(Custom())
    memo = memos.defer("uid1")
    assert type(memo) is Custom
    assert memos.defer("uid1") is memo
