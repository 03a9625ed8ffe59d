"""The base class of errors that end an operator and explain themselves."""

from __future__ import annotations


class OperatorError(Exception):
    """
    The operator cannot continue. The message names the problem and the solution.

    The command line shows only the message, without a traceback.
    """
