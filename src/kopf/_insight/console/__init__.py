"""The console: a page that shows what the operator does. The history is filled from the bus, the page asks for it."""
