"""
Lives of objects and operators, as data: what is done to them step by step.

>>> HELD = (create(spec={"field": 1}), until("create_fn"), kill(), start(), settle())

The operator is started before the first step, unless the life says when; it is stopped after the last one. Steps that
are refused by the API are a part of the outcome, not an error.
"""

from __future__ import annotations

import dataclasses
from typing import Any

Obj = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to do; its name is the name of the method in ``living.py``."""

    name: str
    options: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"


def create(
    name: str = "obj",
    *,
    kind: str = "kex",
    spec: Obj | None = None,
    namespace: str = "default",
    extra: Obj | None = None,
    dry: bool = False,
    **metadata: Any,
) -> Step:
    """Create an object; the kwargs are of its metadata, ``extra`` is besides the spec."""
    body = {"metadata": {"name": name, **metadata}, "spec": {"field": 1} if spec is None else spec, **(extra or {})}
    return Step("create", {"kind": kind, "body": body, "namespace": namespace, "dry": dry})


def raw(kind: str, body: Obj, namespace: str = "default") -> Step:
    """Create any object as it is."""
    return Step("create", {"kind": kind, "body": body, "namespace": namespace, "dry": False})


def patch(body: Obj, name: str = "obj", *, kind: str = "kex", namespace: str = "default", sub: str = "") -> Step:
    """Change an object with a merge-patch."""
    return Step("patch", {"kind": kind, "name": name, "body": body, "namespace": namespace, "sub": sub})


def edit(name: str = "obj", *, kind: str = "kex", **spec: Any) -> Step:
    """Change the spec."""
    return patch({"spec": spec}, name, kind=kind)


def label(name: str = "obj", **labels: str | None) -> Step:
    """Change the labels."""
    return patch({"metadata": {"labels": labels}}, name)


def annotate(name: str = "obj", **annotations: str | None) -> Step:
    """Change the annotations."""
    return patch({"metadata": {"annotations": annotations}}, name)


def delete(name: str = "obj", *, kind: str = "kex", namespace: str = "default") -> Step:
    """Request the deletion."""
    return Step("delete", {"kind": kind, "name": name, "namespace": namespace})


def settle() -> Step:
    """Wait until nothing happens any more, and look at all objects."""
    return Step("settle", {})


def look() -> Step:
    """Look at all objects while something is still pending."""
    return Step("look", {})


def until(fn: str, times: int = 1) -> Step:
    """Wait until the function is called so many times in this life of the operator."""
    return Step("until", {"what": "call", "text": fn, "times": times})


def until_note(text: str, times: int = 1) -> Step:
    """Wait until it was noted so many times in this life of the operator."""
    return Step("until", {"what": "note", "text": text, "times": times})


def until_log(text: str, times: int = 1) -> Step:
    """Wait until a line with that text is logged so many times in this life of the operator."""
    return Step("until", {"what": "log", "text": text, "times": times})


def saved(id: str) -> Step:
    """Wait until it is saved on an object that the handler has succeeded, while other handlers are not done yet."""
    return Step("saved", {"key": f"kopf.zalando.org/{id}"})


def start(*args: str, file: str = "operator.py") -> Step:
    """Start the operator; with other arguments or another version of it, if they are given."""
    return Step("start", {"args": list(args), "file": file})


def launch(*args: str, file: str = "operator.py") -> Step:
    """Start an operator that is not expected to begin watching."""
    return Step("launch", {"args": list(args), "file": file})


def stop() -> Step:
    """Ask the operator to exit (SIGTERM), and wait for that."""
    return Step("stop", {})


def kill() -> Step:
    """Kill the operator (SIGKILL)."""
    return Step("kill", {})


def leave() -> Step:
    """Wait until the operator exits by itself."""
    return Step("leave", {})


def probe(path: str = "/healthz") -> Step:
    """Ask the liveness endpoint."""
    return Step("probe", {"path": path})


def fault(**options: Any) -> Step:
    """Let requests to the API fail; with no options, that is over."""
    return Step("fault", options)


def command(*args: str) -> Step:
    """Run another command of the framework."""
    return Step("command", {"args": list(args)})


USUAL = (create(), settle(), edit(field=2), settle(), delete(), settle())
"""What happens to most objects."""


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator and a life."""

    name: str
    source: str
    """The operator; the imports and a login are added to it."""
    life: tuple[Step, ...] = USUAL
    settings: str = ""
    """Statements that configure the operator."""
    args: tuple[str, ...] = ("--standalone", "--all-namespaces")
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    """More files, e.g. the next version of the operator."""
    kinds: tuple[str, ...] = ("kex",)
    """What is looked at."""
    given: tuple[Step, ...] = ()
    """What is there before the operator is started."""
    parallel: bool = False
    """Whether the order of the handlers of one object is not promised."""
    first: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many calls of a function matter: they go on until the operator is stopped."""
    watches: str | None = "kopfexamples"
    """What the operator watches when it is started."""
    is_bare: bool = False
    """Whether the operator is exactly the source, with nothing added."""
    webhooks: bool = False
    """Whether the operator needs a certificate for its webhook server: ``cert.pem`` and ``key.pem`` in its folder."""
    events: bool = False
    """Whether log lines are posted as events of the cluster."""
