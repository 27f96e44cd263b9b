// first, first + 1, ...
fn arange(index: u32, first: u32) -> i32 {
    return i32(first + index);
}
