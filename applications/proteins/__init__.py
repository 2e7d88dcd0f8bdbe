"""A protein family: held-out sequences, and the effect of single mutations."""
