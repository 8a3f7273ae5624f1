"""Hazard families of leaves and heads."""
