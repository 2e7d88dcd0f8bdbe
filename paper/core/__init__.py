"""What the studies need of the library, in their own words.

runs     train, resume and evaluate a cell of a table
trained  open a trained run with held-out examples, and keep a study's results in a folder
effort   how carefully a training is evaluated
chains   anneal chains with a kernel, tune its step sizes, and walk on at the posterior
"""
