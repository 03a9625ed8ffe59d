"""The configuration of an operator: plain data, with defaults for production."""
