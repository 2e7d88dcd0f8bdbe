"""A table with holes: log p of what is there, and errors of what is filled in."""
