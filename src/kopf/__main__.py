"""The command ``python -m kopf``: the same as ``kopf``, but in a specific interpreter."""

from __future__ import annotations

from kopf.cli import main

if __name__ == "__main__":
    main(prog_name="kopf")
