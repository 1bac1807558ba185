"""Does it help, by how much, how sure are we? Measurements over recorded answers."""
