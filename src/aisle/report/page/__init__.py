"""Runs on one page that needs nothing but itself: read, drawn and written down."""
