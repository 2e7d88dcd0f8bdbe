"""Real data, one folder and one command each: `python -m applications.counts`. Not in the wheel."""
