"""Which claims hold for several seeds, in the same time from the same start."""
