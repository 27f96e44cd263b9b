"""Products of matrices."""

import operator

from optirs_web import ops

from .case import Case, torch

MATRICES = [
    [(3, 4), (4, 5)], [(33, 65), (65, 34)], [(1, 7), (7, 1)], [(4,), (4,)], [(3, 4), (4,)], [(3,), (3, 2)],
    [(2, 3, 4), (4, 5)], [(2, 3, 4), (2, 4, 2)], [(2, 1, 3, 2), (3, 2, 2)], [(3, 2), (2, 1, 2, 3)], [(2, 3, 4), (4,)],
    [(2, 0), (0, 3)], [(0, 2), (2, 3)], [(2, 0, 3), (3, 2)],
]  # fmt: skip

CASES = [
    Case("matmul", ops.matmul, operator.matmul, MATRICES, torch.matmul),
    Case("matmul with its transpose", lambda a: a @ a.T, lambda a: a @ a.T, [[(5, 3)]], lambda a: a @ a.T, slopes=5e-6),
]
