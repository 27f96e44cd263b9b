// 0, 1, 2, ...
fn arange(index: u32) -> i32 {
    return i32(index);
}
