"""Hydra configuration tree, shipped as ``sstorch.configs``."""
