"""How far the default recipe comes from scratch in some hours: log p(x) against time."""
