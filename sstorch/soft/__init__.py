"""Regressions, prognostic and soft survival trees, estimators of torch modules, and what goes with them."""
