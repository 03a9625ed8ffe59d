"""
What operators import from the private modules of the original framework: the same names, leading to what is here.

Nothing of it is loaded until such an import is attempted, by the hook in ``kopf/__init__.py`` and by nobody else. Every
use is warned of, with the public way if there is one. All of it goes with the version 3.0.
"""
