"""Figure 1: how close importance sampling and annealing come to a known target at equal cost."""
