"""
The kinds of objects: the built-in ones as data, and the custom ones by their definitions.
"""
