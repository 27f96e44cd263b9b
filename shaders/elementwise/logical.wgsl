// Logic of bools, which are 0 and 1 in memory.
fn logical_and(a: u32, b: u32) -> bool {
    return a != 0u && b != 0u;
}

fn logical_or(a: u32, b: u32) -> bool {
    return a != 0u || b != 0u;
}

fn logical_xor(a: u32, b: u32) -> bool {
    return (a != 0u) != (b != 0u);
}

fn logical_not(a: u32) -> bool {
    return a == 0u;
}
