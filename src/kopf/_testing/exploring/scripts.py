"""
Scripts: the shortest programs in Python that repeat one failure.
"""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

from kopf._testing.exploring.variants import Variant
from kopf._testing.exploring.walks import Walk

_TEMPLATE = '''\
# {name}
import runpy
{imports}
exploration = runpy.run_path({path!r})[{function!r}].exploration

def trouble(simulation):
    {code}

calm = exploration.run_baseline()
troubled = exploration.run(trouble, seed={seed}{judgement})
print(troubled.journal)
differences = troubled.compare(calm)
assert not differences, "\\n".join(differences)
'''
_WALK_TEMPLATE = '''\
# {name}
import runpy

walk = runpy.run_path({path!r})[{function!r}].walk

expected = walk.run({expected!r})
walked = walk.run(
{states}{ending})
print(walked.journal)
differences = walked.compare(expected)
assert not differences, "\\n".join(differences)
'''
_IMPORTABLE = ("FaultRule", "delete_created")
"""What the code of variants can use."""


def write_script(test: Any, variant: Variant, seed: int) -> str:
    """Write the script that tells the story without trouble and with it, and compares how they have ended."""
    imported = [name for name in _IMPORTABLE if name in variant.code]
    judgement = "".join([
        f", ending={variant.ending!r}" if variant.ending else "",
        ", is_harmed=True" if variant.is_harmed else "",
        ", is_test_judged=False" if not variant.is_test_judged else "",
    ])
    return _TEMPLATE.format(
        name=variant.name, imports=f"from kopf.testing import {', '.join(imported)}\n" if imported else "",
        path=_find_file(test), function=test.__qualname__, code=variant.code or "pass",
        seed=seed if variant.seed is None else variant.seed, judgement=judgement,
    )


def write_walk_script(describe: Any, walk: Walk) -> str:
    """Write the script that brings an object from one state to another, and compares that with what it must be."""
    return _WALK_TEMPLATE.format(
        name=walk.name, path=_find_file(describe), function=describe.__qualname__, expected=walk.expected,
        states="".join(f"    {state!r},\n" for state in walk.states),
        ending=f"    ending={walk.ending!r},\n" if walk.ending else "",
    )


def _find_file(test: Any) -> str:
    """Give the path of the test's file, relative to the current directory if it is there."""
    path = pathlib.Path(inspect.getfile(test))
    return str(path.relative_to(pathlib.Path.cwd())) if path.is_relative_to(pathlib.Path.cwd()) else str(path)
