"""All hand-written cases, by the section of the specification."""

from __future__ import annotations

import importlib
import pkgutil

from tests.differential.lives import Case

SECTIONS: dict[str, list[Case]] = {
    module.name: importlib.import_module(f"{__name__}.{module.name}").CASES for module in pkgutil.iter_modules(__path__)
}
CASES = [case for cases in SECTIONS.values() for case in cases]
