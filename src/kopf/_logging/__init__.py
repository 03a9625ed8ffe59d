"""Logging: the loggers of the objects, the formats of the command line, tracebacks."""
