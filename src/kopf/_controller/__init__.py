"""The controller: what happens to the objects of one resource, from the watch stream to the patch."""
