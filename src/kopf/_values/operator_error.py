"""The error that all others derive from which end an operator and explain themselves."""

from __future__ import annotations


class OperatorError(Exception):
    """
    The operator cannot go on; the message says what is wrong and what can be done about that.

    No traceback is needed to understand it: the command line shows only the message.
    """
