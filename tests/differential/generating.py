"""
Random operators and random lives: the same for the same number.

What is generated stays within what both frameworks promise: nothing depends on how fast they are. So each life
settles between its steps, and only the order in which the handlers of different kinds are called is left open.
"""

from __future__ import annotations

import random

from tests.differential.lives import Case, Step, annotate, create, delete, kill, label, patch, settle, start, stop

KINDS = ["create", "update", "delete", "resume", "field", "event", "change", "parent", "daemon"]
FILTERS = [
    "",
    "",
    "",
    "labels={'mark': 'on'}",
    "labels={'mark': kopf.PRESENT}",
    "labels={'mark': kopf.ABSENT}",
    "annotations={'mark': kopf.PRESENT}",
    "when=lambda spec, **_: (spec.get('x') or 0) % 2 == 1",
    "when=lambda name, **_: name == 'a'",
    "labels={'mark': lambda value, **_: value != 'off'}",
]
FAILURES = ["", "", "", "temporary", "arbitrary", "permanent"]
STEPS = ["create", "edit", "edit", "label", "annotate", "status", "delete", "restart", "kill", "downtime"]
EFFECTS = ["", "", "result", "status", "label"]


def generate(number: int) -> Case:
    """Make the operator and the life of that number."""
    dice = random.Random(number)
    handlers = [_generate_handler(dice, index) for index in range(dice.randint(1, 5))]
    return Case(f"random-{number}", "\n".join(handlers), tuple(_generate_life(dice)), kinds=("kex",))


def _generate_handler(dice: random.Random, index: int) -> str:
    kind = dice.choice(KINDS)
    name = f"{kind}{index}"
    filters = dice.choice(FILTERS)
    is_async = dice.random() < 0.5
    define = f"{'async ' if is_async else ''}def {name}(**kw):"
    if kind == "event":
        return f"@kopf.on.event(*E, {filters})\n{define}\n    see(kw)\n"
    if kind == "daemon":
        return (
            f"@kopf.daemon(*E, {filters})\nasync def {name}(stopped, **kw):\n"
            f"    see({{**kw, 'stopped': stopped}})\n    await stopped.wait()\n    note('end of {name}')\n"
        )
    failure, effect = dice.choice(FAILURES), dice.choice(EFFECTS)
    if kind == "parent":  # waiting for sub-handlers counts as retries in one of the frameworks
        failure = ""
    # Resuming handlers are called in creations only by one of the frameworks. Besides, they would patch what is there
    # already; the other one then waits for seconds for a change that never comes, and looks settled meanwhile.
    if kind in {"resume", "change"}:
        effect = ""
    options = [filters] if filters else []
    if failure == "arbitrary":
        options.append("backoff=0")
    if failure in {"arbitrary", "temporary"} and dice.random() < 0.3:
        options.append(f"retries={dice.randint(1, 3)}")
    decorators = _get_decorators(dice, kind)
    lines = [f"@kopf.on.{reason}({', '.join(['*E', *extra, *options])})" for reason, extra in decorators]
    lines += [define, "    see(kw)", *(f"    {line}" for line in _generate_body(dice, name, kind, failure, effect))]
    return "\n".join(lines) + "\n"


def _get_decorators(dice: random.Random, kind: str) -> list[tuple[str, list[str]]]:
    match kind:
        case "change":
            reasons = [reason for reason in ("update", "delete", "resume") if dice.random() < 0.7]
            return [("create", []), *((reason, []) for reason in reasons)]
        case "parent":
            return [("create", []), ("update", [])]
        case "field":
            return [("field", [f"field='spec.{dice.choice('xy')}'"])]
        case "delete":
            return [("delete", dice.choice([[], [], ["optional=True"]]))]
        case _:
            return [(kind, [])]


def _generate_body(dice: random.Random, name: str, kind: str, failure: str, effect: str) -> list[str]:
    lines = []
    if effect == "status":
        lines.append(f"kw['patch'].status['by-{name}'] = kw['spec'].get('x')")
    if effect == "label" and kind != "delete":
        lines.append(f"kw['patch'].metadata.labels['by-{name}'] = 'yes'")
    match failure:
        case "temporary":
            lines.append(f"if kw['retry'] < {dice.randint(1, 3)}: raise kopf.TemporaryError('not yet', delay=0)")
        case "arbitrary":
            lines.append(f"if kw['retry'] < {dice.randint(1, 3)}: raise ValueError('boom')")
        case "permanent":
            lines.append("if kw['spec'].get('y'): raise kopf.PermanentError('never')")
    if kind == "parent":
        lines += [
            f"for item in {dice.sample('abc', dice.randint(1, 3))}:",
            "    @kopf.subhandler(id=item)",
            f"    def {name}_sub(**kw):",
            "        see(kw)",
            f"        if kw['retry'] < {dice.choice([0, 0, 1])}: raise kopf.TemporaryError('not yet', delay=0)",
        ]
    if effect == "result":
        lines.append("return {'x': kw['spec'].get('x')}")
    return lines


def _generate_life(dice: random.Random) -> list[Step]:
    steps, there, is_running = [start()], set[str](), True
    for _ in range(dice.randint(3, 8)):
        name = dice.choice("ab")
        match dice.choice(STEPS):
            case "restart" if is_running:
                steps += [stop(), start()]
            case "kill" if is_running:
                steps += [kill(), start()]
            case "downtime" if is_running:
                steps.append(stop())
                is_running = False
                continue
            case "delete" if name in there and is_running:
                steps.append(delete(name))
                there.discard(name)
            case _ if name not in there:
                spec = {"x": dice.randint(0, 3), "y": dice.randint(0, 1)}
                steps.append(create(name, spec=spec, labels=dice.choice([{}, {"mark": "on"}])))
                there.add(name)
            case "label":
                steps.append(label(name, mark=dice.choice(["on", "off", None])))
            case "annotate":
                steps.append(annotate(name, mark=dice.choice(["on", None])))
            case "status":
                steps.append(patch({"status": {"foreign": dice.randint(0, 3)}}, name))
            case _:
                steps.append(patch({"spec": {dice.choice("xy"): dice.choice([0, 1, 2, 3, None])}}, name))
        if is_running:
            steps.append(settle())
        elif dice.random() < 0.6:
            steps += [start(), settle()]
            is_running = True
    if not is_running:
        steps += [start(), settle()]
    return steps
