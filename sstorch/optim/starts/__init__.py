"""Initial solutions: clusters of rows, hard trees, trees grown level by level, Cox models."""
