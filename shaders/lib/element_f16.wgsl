// The element type of subgroup matrices of f16; see matrices.wgsl.
enable f16;

alias Element = f16;
const PADDING: u32 = 8u; // elements in 16 bytes
