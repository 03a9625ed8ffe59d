"""
Who may do what: certificates, tokens, impersonation, roles, and the reviews of all that.
"""
