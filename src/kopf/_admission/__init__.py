"""Admission: the reviews of the API servers, the verdicts of the handlers, and how the API servers find us."""
