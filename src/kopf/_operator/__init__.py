"""The frame of an operator: startup, login, what to watch, supervision, shutdown."""
