"""Functions of each element, and of pairs of elements with broadcasting."""

import math
import operator

from optirs_web import ops

from .case import MORE_OF_TWO, Case, binary, functional, np, torch, unary

STEPS = "is constant between its steps"

NORMAL = math.sqrt(0.5)


def erf(x):
    return np.vectorize(math.erf)(x) if x.size else x


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def choose(condition, a, b):
    return np.where(condition > 0, a, b)


ARITHMETIC = [
    binary("add", ops.add, operator.add, torch.add, MORE_OF_TWO),
    unary("add a number", lambda a: 1.5 + a, lambda a: 1.5 + a, lambda a: 1.5 + a),
    Case("add to itself", lambda a: a + a, lambda a: a + a, [[(7,)]]),
    binary("subtract", ops.subtract, operator.sub, torch.subtract),
    unary("subtract from a number", lambda a: 2 - a, lambda a: 2 - a, lambda a: 2 - a),
    binary("multiply", ops.multiply, operator.mul, torch.multiply, MORE_OF_TWO),
    Case("multiply by itself", lambda a: a * a, lambda a: a * a, [[(3, 5)]], lambda a: a * a),
    binary("divide", ops.divide, operator.truediv, torch.divide, domain=("normal", "not small")),
    unary("divide a number", lambda a: 2 / a, lambda a: 2 / a, lambda a: 2 / a, domain="not small"),
    unary("negate", ops.negate, operator.neg, torch.neg),
    unary("clone", ops.clone, lambda a: a + 0.0, torch.clone),
    unary("in_order", ops.in_order, lambda a: a + 0.0, lambda a: a.contiguous()),
    binary("power", ops.power, operator.pow, torch.pow, domain=("positive", "normal")),
    unary("power of a number", lambda a: ops.power(1.5, a), lambda a: 1.5**a, lambda a: torch.pow(1.5, a)),
    unary("power 3", lambda a: a**3, lambda a: a**3, lambda a: a**3, domain="not small"),
    unary("power -2", lambda a: a**-2, lambda a: a**-2, lambda a: a**-2, domain="not small"),
    unary("power 2.5", lambda a: ops.power(a, 2.5), lambda a: a**2.5, lambda a: a**2.5, domain="positive"),
]

FUNCTIONS = [
    unary("exp", ops.exp, np.exp, torch.exp),
    unary("expm1", ops.expm1, np.expm1, torch.expm1),
    unary("log", ops.log, np.log, torch.log, domain="positive"),
    unary("log1p", ops.log1p, np.log1p, torch.log1p, domain="share"),
    unary("sqrt", ops.sqrt, np.sqrt, torch.sqrt, domain="positive"),
    unary("rsqrt", ops.rsqrt, lambda a: a**-0.5, torch.rsqrt, domain="positive"),
    unary("reciprocal", ops.reciprocal, lambda a: 1 / a, torch.reciprocal, domain="not small"),
    unary("square", ops.square, lambda a: a * a, torch.square),
    unary("abs", ops.abs, np.abs, torch.abs, domain="not small"),
    unary("sin", ops.sin, np.sin, torch.sin),
    unary("cos", ops.cos, np.cos, torch.cos),
    unary("erf", ops.erf, erf, torch.erf),
    unary("tanh", ops.tanh, np.tanh, torch.tanh),
    unary("sigmoid", ops.sigmoid, lambda a: 1 / (1 + np.exp(-a)), torch.sigmoid),
    unary("relu", ops.relu, lambda a: np.maximum(a, 0), functional.relu, domain="not small"),
    unary(
        "leaky_relu",
        lambda a: ops.leaky_relu(a, 0.2),
        lambda a: np.where(a > 0, a, 0.2 * a),
        lambda a: functional.leaky_relu(a, 0.2),
        domain="not small",
    ),
    unary("softplus", ops.softplus, lambda a: np.logaddexp(a, 0), functional.softplus),
    unary(
        "softplus steeper",
        lambda a: ops.softplus(a, 3.0),
        lambda a: np.logaddexp(3 * a, 0) / 3,
        lambda a: functional.softplus(a, 3.0),
    ),
    unary("silu", ops.silu, lambda a: a / (1 + np.exp(-a)), functional.silu),
    unary("gelu", ops.gelu, lambda a: a / 2 * (1 + erf(a * NORMAL)), functional.gelu),
    unary(
        "gelu by tanh",
        lambda a: ops.gelu(a, "tanh"),
        gelu_tanh,
        lambda a: functional.gelu(a, approximate="tanh"),
    ),
    unary("sign", ops.sign, np.sign, torch.sign, domain="not small", tolerance=0),
]

CHOICES = [
    binary("maximum", ops.maximum, np.maximum, torch.maximum, domain=("distinct", "between")),
    binary("minimum", ops.minimum, np.minimum, torch.minimum, domain=("distinct", "between")),
    unary("maximum with a number", lambda a: ops.maximum(a, 0.1), lambda a: np.maximum(a, 0.1), domain="not small"),
    unary(
        "clip",
        lambda a: ops.clip(a, -0.6, 0.9),
        lambda a: np.clip(a, -0.6, 0.9),
        lambda a: torch.clip(a, -0.6, 0.9),
        domain="distinct",
    ),
    unary("clip from above", lambda a: ops.clip(a, max=0.9), lambda a: np.minimum(a, 0.9), domain="distinct"),
    Case(
        "clip by tensors",
        ops.clip,
        np.clip,
        [[(3, 4), (4,), ()], [(), (), ()], [(2, 3, 4), (3, 1), (4,)]],
        torch.clip,
        domain=("distinct", "low", "high"),
        of_each=True,
    ),
    Case(
        "where",
        lambda c, a, b: ops.where(ops.greater(c, 0), a, b),
        choose,
        [
            [(3, 4), (3, 4), (4,)],
            [(), (), ()],
            [(3, 1), (1, 4), ()],
            [(2, 1, 4), (3, 1), (2, 3, 4)],
            [(0, 3), (3,), ()],
        ],
        lambda c, a, b: torch.where(c > 0, a, b),
        domain=("signs", "normal", "normal"),
        of_each=True,
    ),
    Case(
        "where with a number",
        lambda a: ops.where(ops.less(a, 0.1), a * a, -1.0),
        lambda a: np.where(a < 0.1, a * a, -1.0),
        [[(3, 4)], [()]],
        lambda a: torch.where(a < 0.1, a * a, -1.0),
        domain="not small",
    ),
]


def comparison(name, reference, torch_function, domain="signs"):
    """Rows of a function of two integers or numbers that is true or false."""
    ours = getattr(ops, name)
    return [
        binary(name, ours, reference, torch_function, domain=domain, tolerance=0, why_not=STEPS),
        binary(f"{name} of numbers", ours, reference, domain=("halves", "halves"), tolerance=0, why_not=STEPS),
    ]


TRUTHS = [
    *comparison("equal", operator.eq, torch.eq),
    *comparison("not_equal", operator.ne, torch.ne),
    *comparison("less", operator.lt, torch.lt),
    *comparison("less_equal", operator.le, torch.le),
    *comparison("greater", operator.gt, torch.gt),
    *comparison("greater_equal", operator.ge, torch.ge),
    *comparison("logical_and", np.logical_and, torch.logical_and),
    *comparison("logical_or", np.logical_or, torch.logical_or),
    *comparison("logical_xor", np.logical_xor, torch.logical_xor),
    unary(
        "logical_not", ops.logical_not, np.logical_not, torch.logical_not, domain="signs", tolerance=0, why_not=STEPS
    ),
    unary(
        "isnan",
        lambda a: ops.isnan(ops.log(a)),
        lambda a: np.isnan(np.log(a)),
        lambda a: torch.isnan(torch.log(a)),
        tolerance=0,
        why_not=STEPS,
    ),
    unary(
        "isinf",
        lambda a: ops.isinf(1.0 / ops.relu(a)),
        lambda a: np.isinf(1.0 / np.maximum(a, 0)),
        lambda a: torch.isinf(1.0 / functional.relu(a)),
        tolerance=0,
        why_not=STEPS,
    ),
    unary(
        "isfinite",
        lambda a: ops.isfinite(ops.log(a)),
        lambda a: np.isfinite(np.log(a)),
        lambda a: torch.isfinite(torch.log(a)),
        tolerance=0,
        why_not=STEPS,
    ),
    unary(
        "astype",
        lambda a: ops.astype(a, "int32"),
        np.trunc,
        lambda a: a.int(),
        tolerance=0,
        why_not="integers have no derivatives",
    ),
    unary(
        "astype of bools",
        lambda a: ops.astype(ops.greater(a, 0), "float32"),
        lambda a: (a > 0) * 1.0,
        tolerance=0,
        why_not=STEPS,
    ),
]

CASES = [*ARITHMETIC, *FUNCTIONS, *CHOICES, *TRUTHS]
