"""
What kinds of objects there are: the built-in ones as data, the custom ones as their definitions come and go.
"""
