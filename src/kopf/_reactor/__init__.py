"""What happens to one object: mailbox, cause, execution, patching, posting."""
