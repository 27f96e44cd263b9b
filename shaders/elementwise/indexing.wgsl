// Indices: counted from the end where they are negative, left out, reversed, and as places in a flat array. -1 is none.
fn from_end(place: i32, length: i32) -> i32 {
    return select(place, place + length, place < 0);
}

fn without(place: i32, excluded: i32) -> i32 {
    return select(place, -1, place == excluded);
}

fn reversed(index: u32, last: i32) -> i32 {
    return last - i32(index);
}

// Of an entry of (outer, count, inner), the place in (outer, length, inner).
fn flat_place(place: i32, index: u32, length: i32, count: i32, inner: i32) -> i32 {
    let at = i32(index);
    let row = at / (count * inner) * length + place;
    return select(-1, row * inner + at % inner, place >= 0 && place < length);
}
