"""Random programs in our subset of WGSL, which have to compute the same on every target.

`exact_programs` are compared bit for bit, `real_programs` with the range of results that WGSL allows
(`intervals`). A program is made of its seed (`choices`), so its seed prints it; one that targets disagree on is reduced
to a short one that they still disagree on. `make fuzz` runs `__main__`, and `tests/wgsl/test_same_on_every_target.py` a
few of them.
"""
