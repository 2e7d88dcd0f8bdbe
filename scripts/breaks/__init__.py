"""Deliberate breaks of the code, by layer, and the tests that notice."""
