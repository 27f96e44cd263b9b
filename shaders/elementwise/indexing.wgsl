// Indices: counted from the end where they are negative, left out, reversed, and as places in a flat array. -1 is none.
// `first` is the number of the element that has the index 0.
fn from_end(place: i32, length: i32) -> i32 {
    return select(place, place + length, place < 0);
}

fn without(place: i32, excluded: i32) -> i32 {
    return select(place, -1, place == excluded);
}

fn reversed(index: u32, first: u32, last: i32) -> i32 {
    return last - i32(first + index);
}

// Where an index of a whole axis stands in the part of it that begins at `first`; -1 where that is not.
fn in_part(place: i32, first: i32, length: i32) -> i32 {
    return select(-1, place - first, place >= first && place - first < length);
}

// And the index of the whole axis, of a part with this number.
fn in_whole(place: i32, part: i32, length: i32) -> i32 {
    return part * length + place;
}

// Of an entry of (outer, count, inner), the place in (outer, length, inner).
fn flat_place(place: i32, index: u32, first: u32, length: i32, count: i32, inner: i32) -> i32 {
    let at = i32(first + index);
    let row = at / (count * inner) * length + place;
    return select(-1, row * inner + at % inner, place >= 0 && place < length);
}

// The place along an axis of a position in it; one that is beyond any axis for a negative position.
fn place_from_start(position: i32) -> u32 {
    return bitcast<u32>(position);
}

// And where negative positions count from the end.
fn place_from_either_end(position: i32, length: i32) -> u32 {
    return bitcast<u32>(position + (length & (position >> 31u)));
}
