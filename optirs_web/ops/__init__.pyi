from .activations import (
    gelu as gelu,
    leaky_relu as leaky_relu,
    relu as relu,
    sigmoid as sigmoid,
    silu as silu,
    softplus as softplus,
    tanh as tanh,
)
from .arithmetic import (
    add as add,
    add_into as add_into,
    clone as clone,
    divide as divide,
    in_order as in_order,
    mean as mean,
    multiply as multiply,
    negate as negate,
    subtract as subtract,
)
from .attention import scaled_dot_product_attention as scaled_dot_product_attention
from .axes import flatten as flatten, squeeze as squeeze, unsqueeze as unsqueeze
from .bounds import clip as clip, maximum as maximum, minimum as minimum
from .classification import cross_entropy as cross_entropy, nll_loss as nll_loss
from .compare import (
    astype as astype,
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    less as less,
    less_equal as less_equal,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    not_equal as not_equal,
    where as where,
)
from .convolution import conv1d as conv1d, conv2d as conv2d, conv_transpose2d as conv_transpose2d
from .creation import (
    bernoulli as bernoulli,
    full as full,
    manual_seed as manual_seed,
    ones as ones,
    rand as rand,
    randn as randn,
    zeros as zeros,
)
from .devices import to_device as to_device
from .dropouts import dropout as dropout
from .extremum import argmax as argmax, argmin as argmin, max as max, min as min
from .indexing import (
    embedding as embedding,
    flip as flip,
    gather as gather,
    getitem as getitem,
    scatter_add as scatter_add,
    take as take,
)
from .joining import chunk as chunk, concat as concat, pad as pad, split as split, stack as stack
from .linear import matmul as matmul
from .losses import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    huber_loss as huber_loss,
    kl_div as kl_div,
    l1_loss as l1_loss,
    mse_loss as mse_loss,
    smooth_l1_loss as smooth_l1_loss,
)
from .normalization import batch_norm as batch_norm, layer_norm as layer_norm
from .pooling import adaptive_avg_pool2d as adaptive_avg_pool2d, avg_pool2d as avg_pool2d, max_pool2d as max_pool2d
from .powers import power as power
from .random_state import get_rng_state as get_rng_state, set_rng_state as set_rng_state
from .reduce import broadcast_to as broadcast_to, sum as sum, sum_to as sum_to
from .shape import permute as permute, reshape as reshape, transpose as transpose
from .softmaxes import log_softmax as log_softmax, softmax as softmax
from .statistics import logsumexp as logsumexp, std as std, var as var
from .unary import (
    abs as abs,
    cos as cos,
    erf as erf,
    exp as exp,
    expm1 as expm1,
    log as log,
    log1p as log1p,
    reciprocal as reciprocal,
    rsqrt as rsqrt,
    sign as sign,
    sin as sin,
    sqrt as sqrt,
    square as square,
)
from .windows import fold as fold, unfold as unfold
