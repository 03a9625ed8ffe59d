"""Virtual time: an event loop whose clock jumps when there is nothing to do, and the notes of what happens in it."""
