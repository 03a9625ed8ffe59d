"""The console: a page that shows what the operator does. The history is filled by observers, the page asks for it."""
