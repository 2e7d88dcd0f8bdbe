"""Pictures of what a model has learned."""
