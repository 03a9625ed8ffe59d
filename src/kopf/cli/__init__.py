"""
The command line: ``kopf run`` for operators, ``kopf freeze`` & ``kopf resume`` to pause them,
``kopf release`` for what is left of them, ``kopf dev`` & ``kopf cluster`` for their development.

Every option can also be set by an environment variable: e.g. ``KOPF_RUN_VERBOSE=true`` for ``kopf run --verbose``.
"""

from __future__ import annotations

import click

from kopf._logging.configuration import make_formatter
from kopf.cli.cluster import cluster
from kopf.cli.dev import dev
from kopf.cli.options import CLIControls, LogFormatParamType, logging_options
from kopf.cli.peering import freeze, resume
from kopf.cli.releasing import release
from kopf.cli.running import run

__all__ = ["CLIControls", "LogFormatParamType", "logging_options", "main", "make_formatter"]


@click.group(name="kopf", context_settings={"auto_envvar_prefix": "KOPF", "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kopf", prog_name="kopf")
def main() -> None:
    """Write Kubernetes operators in Python, and run them."""


main.add_command(run)
main.add_command(freeze)
main.add_command(resume)
main.add_command(release)
main.add_command(dev)
main.add_command(cluster)
