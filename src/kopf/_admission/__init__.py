"""Admission: the reviews of API servers, the verdicts of handlers, and the configurations for API servers."""
