"""
Scripts: the shortest programs in Python that repeat one failure.
"""

from __future__ import annotations

import os
from typing import Any

from kopf._testing.exploring.subjects import Subject, find_file
from kopf._testing.exploring.variants import Variant
from kopf._testing.exploring.walks import Walk

_TEMPLATE = """\
# {name}
import runpy
{imports}
exploration = runpy.run_path({path!r})[{function!r}].exploration{given}

def trouble(simulation):
    {code}

calm = exploration.run_baseline()
troubled = exploration.run(trouble, seed={seed}{judgement})
print(troubled.journal)
differences = troubled.compare(calm)
assert not differences, "\\n".join(differences)
"""
_WALK_TEMPLATE = """\
# {name}
import runpy

walk = runpy.run_path({path!r})[{function!r}].walk

expected = walk.run({expected!r})
walked = walk.run(
{states}{ending})
print(walked.journal)
differences = walked.compare(expected)
assert not differences, "\\n".join(differences)
"""
_HINT = """\
# {name}
# A script cannot call the test as pytest does. To repeat this run alone, name it in the decorator, and run the test:
#   @explore(..., only={name!r})
#   pytest {test!r}
"""
_IMPORTABLE = ("FaultRule", "delete_created")
"""What the code of variants can use."""


def write_script(subject: Subject, variant: Variant, seed: int) -> str:
    """
    Write the script that tells the story without trouble and with it, and compares how they have ended.

    If the test is inside of something, or is given what has no form in Python, it is only told how to run it.
    """
    if not subject.is_importable:
        return _HINT.format(name=variant.name, test=_identify(subject))
    imported = [name for name in _IMPORTABLE if name in variant.code]
    judgement = "".join(
        [
            f", ending={variant.ending!r}" if variant.ending else "",
            ", is_harmed=True" if variant.is_harmed else "",
            ", is_test_judged=False" if not variant.is_test_judged else "",
        ]
    )
    return _TEMPLATE.format(
        name=variant.name,
        imports=f"from kopf.testing import {', '.join(imported)}\n" if imported else "",
        path=subject.path,
        function=subject.function.__qualname__,
        given=_write_arguments(subject),
        code=variant.code or "pass",
        seed=seed if variant.seed is None else variant.seed,
        judgement=judgement,
    )


def write_walk_script(describe: Any, walk: Walk) -> str:
    """Write the script that brings an object from one state to another, and compares that with what it must be."""
    return _WALK_TEMPLATE.format(
        name=walk.name,
        path=find_file(describe),
        function=describe.__qualname__,
        expected=walk.expected,
        states="".join(f"    {state!r},\n" for state in walk.states),
        ending=f"    ending={walk.ending!r},\n" if walk.ending else "",
    )


def _write_arguments(subject: Subject) -> str:
    written = ", ".join(f"{name}={value!r}" for name, value in subject.arguments.items())
    return f".given({written})" if written else ""


def _identify(subject: Subject) -> str:
    """Tell how pytest calls the test: it says so itself while the test runs."""
    current, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")
    return current or subject.path
