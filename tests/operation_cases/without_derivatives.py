"""Public names of `optirs_web.ops` and its modules that no row tests: each with the reason."""

# What users call.
WITHOUT_DERIVATIVES = {
    "add_into": "changes a tensor in place and leaves no history",
    "bernoulli": "gives numbers that do not depend smoothly on the probabilities",
    "full": "has no inputs",
    "get_rng_state": "is no function of tensors",
    "manual_seed": "is no function of tensors",
    "ones": "has no inputs",
    "rand": "has no inputs",
    "randn": "has no inputs",
    "set_rng_state": "is no function of tensors",
    "to_device": "needs two devices, of which a page has one: tests/test_operations.py has its gradient",
    "zeros": "has no inputs",
}

# What gives a tensor in a module, and is not among what users call: what operations are made of.
HELPERS = {
    "apply": "runs a map function and leaves no history",
    "arange": "has no inputs",
    "as_images": "gives another walk, by `reshape`",
    "columns_of": "gives the values of `unfold`, and leaves no history",
    "contiguous": "copies values and leaves no history; `in_order` leaves one",
    "filled": "has no inputs",
    "launch_map": "runs a map function and leaves no history",
    "looked_up": "gives the values of `take`, `gather` and `embedding`, and leaves no history",
    "map_function": "runs a map function and leaves no history",
    "narrowed": "gives the same elements in less memory, and leaves no history",
    "part_along": "gives another strided view and leaves no history",
    "part_of": "is `getitem` without an array",
    "put_part": "is the gradient of `getitem`, and `pad`: tested by their second derivatives",
    "record_composed": "notes how a result was made",
    "reduced": "is the last step of each loss",
    "slope": "is the gradient of each function of an element: tested by their second derivatives",
    "spread": "is the gradient of `take`, `gather` and `embedding`: tested by their second derivatives",
    "sqrt_or_zero_slope": "is the last step of `std`",
    "strided_view": "gives another strided view and leaves no history",
}
