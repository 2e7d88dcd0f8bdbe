"""What the package claims, as commands: checks against exact answers, figures and tables."""
