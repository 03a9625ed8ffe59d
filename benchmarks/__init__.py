"""Measurements of the framework: against the original one (``make bench``), and of its parts (``micro``)."""
