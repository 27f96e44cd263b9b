// One more, in place.
fn next_count(count: i32) -> i32 {
    return count + 1;
}
