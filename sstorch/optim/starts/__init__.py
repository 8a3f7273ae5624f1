"""Initial solutions: random, clusters of rows, gates distilled from a regression, Cox models."""
