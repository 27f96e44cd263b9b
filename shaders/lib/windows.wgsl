// Windows that slide over a plane, along one axis: which elements are under their taps.
//
// Elements are `spacing` positions apart. Where that is more than 1, most taps are over none, and SPREAD is set: then the
// first tap over one is looked for, and only every `period`th from there on is gone through.
import package::lib::extremes::{Candidate, HIGHEST};

override SPREAD: bool = false;

// The first tap of a window that is over an element, if the plane goes on there; and the number of that element, which
// before the plane is larger than any.
struct FirstTap { tap: u32, element: u32 }

// Of the window at a place of the grid; `remainder` is `tap_step` modulo `spacing`.
fn first_tap(
    place: u32, taps: u32, step: u32, start: i32, spacing: u32, tap_step: i32, remainder: u32
) -> FirstTap {
    let position = i32(place * step) + start;
    if !SPREAD {
        return FirstTap(0u, u32(position));
    }
    let after_element = position % i32(spacing);
    var left_over = u32(select(after_element, after_element + i32(spacing), after_element < 0));
    var tap = 0u;
    while left_over != 0u && tap < taps {
        left_over += remainder;
        if left_over >= spacing {
            left_over -= spacing;
        }
        tap++;
    }
    return FirstTap(tap, u32((position + i32(tap) * tap_step) / i32(spacing)));
}

// The larger of two, `b` under a later tap: the first of equal ones, but the last NaN, as torch pools.
fn larger(a: Candidate, b: Candidate) -> Candidate {
    if b.rank > a.rank || b.rank == HIGHEST {
        return b;
    }
    return a;
}
