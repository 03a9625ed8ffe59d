"""Tools for the authors of operators; the framework itself does not need them."""
