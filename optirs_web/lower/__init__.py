"""Lowerings of `kernel.Kernel`.

Kernels that reduce rows become a shader (`shader`), also where rows are windows (`windows`); maps a shader (`maps`), a
part of another kernel (`hooks`) or loops for Numba (`loops`). Both become arrays of NumPy and JAX (`arrays`), but for
kernels over windows: `native_backends` has one file for those on NumPy and one for JAX, with slices for the taps.
"""
