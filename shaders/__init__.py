"""The WGSL sources, as package data: the only place where kernel mathematics lives."""
