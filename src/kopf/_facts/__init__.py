"""What happens in an operator, told to whoever wants to know."""
