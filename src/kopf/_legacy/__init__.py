"""
Stand-ins for the private modules of the original framework that operators import: the same names lead to our code.

Only the hook in ``kopf/__init__.py`` loads this package, when an operator attempts such an import. Every use causes a
warning, with the public replacement if there is one. The version 3.0 drops the whole package.
"""
