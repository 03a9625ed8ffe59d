"""Inspecting: what a running operator knows of one object right now, asked for from outside of its event loop."""
