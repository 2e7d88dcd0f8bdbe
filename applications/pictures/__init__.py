"""Pictures by linear layers and by convolutions."""
