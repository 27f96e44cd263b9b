// Windows that slide over images: where their taps lie, along one axis. A place outside is a large number.
struct Windows {
    size: u32, // invocations that have work
    first: u32, // element of the images that comes first
    plane_stride: u32, // of what holds a value for each tap of each window
    tap_stride: u32,
    height: u32,
    width: u32,
    out_height: u32, // windows along an axis
    out_width: u32,
    kernel_height: u32, // taps of a window along an axis
    kernel_width: u32,
    stride_height: u32,
    stride_width: u32,
    top: u32, // rows and columns of padding before an image
    left: u32,
    dilation_height: u32,
    dilation_width: u32,
}

// The pixel under a tap of a window; before the image it is larger than any size.
fn pixel_under(window: u32, tap: u32, stride: u32, dilation: u32, padding: u32) -> u32 {
    return window * stride + tap * dilation - padding;
}

// The window that has a tap on a pixel, tap by tap: dividing for each takes a software adapter longer than all else. It
// is one where nothing is left over.
struct WindowOver { number: u32, left_over: u32 }

fn window_over(pixel: u32, stride: u32, padding: u32) -> WindowOver {
    return WindowOver((pixel + padding) / stride, (pixel + padding) % stride);
}

// How far apart the windows of neighbouring taps are.
fn step_of(stride: u32, dilation: u32) -> WindowOver {
    return WindowOver(dilation / stride, dilation % stride);
}

fn next_tap(one: WindowOver, step: WindowOver, stride: u32) -> WindowOver {
    let borrows = one.left_over < step.left_over;
    return WindowOver(
        one.number - step.number - select(0u, 1u, borrows), one.left_over - step.left_over + select(0u, stride, borrows)
    );
}

fn is_there(one: WindowOver, windows: u32) -> bool {
    return one.left_over == 0u && one.number < windows;
}
