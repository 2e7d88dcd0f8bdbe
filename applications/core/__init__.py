"""What the applications share: data files, cells that are kept, training, tables and pictures."""
