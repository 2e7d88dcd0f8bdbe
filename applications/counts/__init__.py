"""Transcripts of single cells: which law of counts, and what annealing adds."""
