"""
What operators import from the private modules of the original framework: the same names, leading to what is here.

Nothing of it is loaded until such an import is attempted. Every use is warned of, with the public way if there is one.
"""
