// The element type of subgroup matrices of f32; see matrices.wgsl.
alias Element = f32;
const PADDING: u32 = 4u; // elements in 16 bytes
