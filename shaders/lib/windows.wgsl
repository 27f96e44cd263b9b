// Windows that slide over a plane, along one axis: which of its elements lie under their taps.
//
// Elements are `spacing` positions apart. Where that is more than 1, most taps have none, and SPREAD is set: then those
// that have one are looked for first, and only they are gone through.
import package::lib::extremes::{Candidate, HIGHEST};

override SPREAD: bool = false;

// The first tap of a window with an element under it, if the plane has one there; and the number of that element, which
// before the plane is larger than any.
struct FirstTap { tap: u32, element: u32 }

// Of the window at a place of the grid; `rest` is what `tap_step` leaves over, divided by `spacing`.
fn first_tap(
    place: u32, taps: u32, step: u32, start: i32, spacing: u32, tap_step: i32, rest: u32
) -> FirstTap {
    let position = place * step + u32(start);
    if !SPREAD {
        return FirstTap(0u, position);
    }
    var left_over = position % spacing;
    var tap = 0u;
    while left_over != 0u && tap < taps {
        left_over += rest;
        if left_over >= spacing {
            left_over -= spacing;
        }
        tap++;
    }
    return FirstTap(tap, u32((i32(position) + i32(tap) * tap_step) / i32(spacing)));
}

// The larger of two, `b` under a later tap: the first of equal ones, but the last NaN, as torch pools.
fn larger(a: Candidate, b: Candidate) -> Candidate {
    if b.rank > a.rank || b.rank == HIGHEST {
        return b;
    }
    return a;
}
