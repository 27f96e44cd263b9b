"""The host's processor: NumPy, and loops compiled by Numba."""
