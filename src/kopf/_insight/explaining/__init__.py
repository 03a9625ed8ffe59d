"""Explanations: why the handlers of an object run or do not run, as data and in words."""
