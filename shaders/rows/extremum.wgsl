// Where the largest or the smallest element of a row stands, by type of the elements.

fn float_element(x: f32) -> f32 {
    return x;
}

fn integer_element(x: i32) -> i32 {
    return x;
}

fn word_element(x: u32) -> u32 {
    return x;
}

// In the whole row, of one that has been found in a segment.
fn place_in_row(found: u32, begin: u32) -> i32 {
    return i32(begin + found);
}
