"""The tables: cells that are trained and evaluated, and the claims that they decide."""
