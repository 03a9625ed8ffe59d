"""Inspecting: the knowledge of a running operator about one object, for other event loops."""
