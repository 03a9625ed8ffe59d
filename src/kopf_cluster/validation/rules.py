"""
Which rules there are for which kinds.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from ..statuses import FieldError
from . import webhook_configurations

Obj: TypeAlias = dict[str, Any]
Validator: TypeAlias = Callable[[Obj, Obj | None], Iterator[FieldError]]

# By the plural names, which are unique among built-in kinds.
_VALIDATORS: Final[Mapping[str, tuple[Validator, ...]]] = {
    "mutatingwebhookconfigurations": (webhook_configurations.validate,),
    "validatingwebhookconfigurations": (webhook_configurations.validate,),
}

# What the rules are not about; a write that changes nothing else is as good as the object was before.
_LEFT_OUT: Final = frozenset({"metadata", "status"})


def validate(plural: str, new: Obj, old: Obj | None) -> list[FieldError]:
    """Give everything that is wrong with a new state; the old one is there if the object is changed."""
    validators = _VALIDATORS.get(plural, ())
    if not validators or (old is not None and _is_same(new, old)):
        return []
    return [error for validator in validators for error in validator(new, old)]


def _is_same(new: Obj, old: Obj) -> bool:
    return all(new.get(name) == old.get(name) for name in {*new, *old} if name not in _LEFT_OUT)
