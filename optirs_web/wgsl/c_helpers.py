"""Functions that rows of `c_dialects` call, in C; ``@`` is the suffix of functions of f32, nothing or ``f``.

A text contains those that it uses, in the order of these tables, each with the dialect's qualifier of functions.
"""

from __future__ import annotations

__all__ = ["CUDA_HELPERS", "CUDA_SUBGROUPS", "HELPERS", "OPENCL_HELPERS"]

HELPERS = {
    "_add_i32": """
i32 _add_i32(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
""",
    "_subtract_i32": """
i32 _subtract_i32(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
""",
    "_multiply_i32": """
i32 _multiply_i32(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
""",
    "_divide_u32": """
u32 _divide_u32(u32 a, u32 b) { return b == 0u ? a : a / b; }
""",
    "_remainder_u32": """
u32 _remainder_u32(u32 a, u32 b) { return b == 0u ? 0u : a % b; }
""",
    "_divide_i32": """
i32 _divide_i32(i32 a, i32 b) { return b == 0 ? a : b == -1 ? (i32)(0u - (u32)a) : a / b; }
""",
    "_remainder_i32": """
i32 _remainder_i32(i32 a, i32 b) { return b == 0 || b == -1 ? 0 : a % b; }
""",
    "_abs_i32": """
i32 _abs_i32(i32 x) { return x < 0 ? (i32)(0u - (u32)x) : x; }
""",
    "_sign_i32": """
i32 _sign_i32(i32 x) { return (x > 0) - (x < 0); }
""",
    "_sign_f32": """
f32 _sign_f32(f32 x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x; }
""",
    "_fract": """
f32 _fract(f32 x) { return x - floor@(x); }
""",
    "_mix": """
f32 _mix(f32 a, f32 b, f32 t) { return a * (1.0f - t) + b * t; }
""",
    "_smoothstep": """
f32 _smoothstep(f32 low, f32 high, f32 x) {
    const f32 t = fmin@(fmax@((x - low) / (high - low), 0.0f), 1.0f);
    return t * t * (3.0f - 2.0f * t);
}
""",
    "_i32_of_f32": """
i32 _i32_of_f32(f32 x) { return x == x ? (i32)fmin@(fmax@(x, -2147483648.0f), 2147483520.0f) : 0; }
""",
    "_u32_of_f32": """
u32 _u32_of_f32(f32 x) { return x == x ? (u32)fmin@(fmax@(x, 0.0f), 4294967040.0f) : 0u; }
""",
    "_reverse_bits": """
u32 _reverse_bits(u32 x) {
    x = (x >> 1u & 0x55555555u) | (x & 0x55555555u) << 1u;
    x = (x >> 2u & 0x33333333u) | (x & 0x33333333u) << 2u;
    x = (x >> 4u & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4u;
    x = (x >> 8u & 0x00ff00ffu) | (x & 0x00ff00ffu) << 8u;
    return x >> 16u | x << 16u;
}
""",
    "_extract_bits_u32": """
u32 _extract_bits_u32(u32 x, u32 offset, u32 count) {
    offset = min(offset, 32u);
    count = min(count, 32u - offset);
    return count == 0u ? 0u : x << (32u - offset - count) >> (32u - count);
}
""",
    "_extract_bits_i32": """
i32 _extract_bits_i32(i32 x, u32 offset, u32 count) {
    offset = min(offset, 32u);
    count = min(count, 32u - offset);
    return count == 0u ? 0 : (i32)((u32)x << (32u - offset - count)) >> (32u - count);
}
""",
    "_insert_bits": """
u32 _insert_bits(u32 x, u32 bits, u32 offset, u32 count) {
    offset = min(offset, 32u);
    count = min(count, 32u - offset);
    const u32 mask = count == 0u ? 0u : ~0u >> (32u - count) << offset;
    return count == 0u ? x : (x & ~mask) | (bits << offset & mask);
}
""",
    "_snorm": """
u32 _snorm(f32 x, f32 largest, u32 mask) {
    return (u32)(i32)floor@(0.5f + largest * fmin@(fmax@(x, -1.0f), 1.0f)) & mask;
}
""",
    "_unorm": """
u32 _unorm(f32 x, f32 largest) { return (u32)floor@(0.5f + largest * fmin@(fmax@(x, 0.0f), 1.0f)); }
""",
    "_pack4x8snorm": """
u32 _pack4x8snorm(vec4f v) {
    return _snorm(v.x, 127.0f, 255u) | _snorm(v.y, 127.0f, 255u) << 8u | _snorm(v.z, 127.0f, 255u) << 16u
        | _snorm(v.w, 127.0f, 255u) << 24u;
}
""",
    "_pack4x8unorm": """
u32 _pack4x8unorm(vec4f v) {
    return _unorm(v.x, 255.0f) | _unorm(v.y, 255.0f) << 8u | _unorm(v.z, 255.0f) << 16u | _unorm(v.w, 255.0f) << 24u;
}
""",
    "_pack2x16snorm": """
u32 _pack2x16snorm(vec2f v) { return _snorm(v.x, 32767.0f, 65535u) | _snorm(v.y, 32767.0f, 65535u) << 16u; }
""",
    "_pack2x16unorm": """
u32 _pack2x16unorm(vec2f v) { return _unorm(v.x, 65535.0f) | _unorm(v.y, 65535.0f) << 16u; }
""",
    "_pack2x16float": """
u32 _pack2x16float(vec2f v) { return _half_bits(v.x) | _half_bits(v.y) << 16u; }
""",
    "_pack4xI8": """
u32 _pack4xI8(vec4i v) {
    return ((u32)v.x & 255u) | ((u32)v.y & 255u) << 8u | ((u32)v.z & 255u) << 16u | (u32)v.w << 24u;
}
""",
    "_pack4xU8": """
u32 _pack4xU8(vec4u v) { return (v.x & 255u) | (v.y & 255u) << 8u | (v.z & 255u) << 16u | v.w << 24u; }
""",
    "_pack4xI8Clamp": """
u32 _pack4xI8Clamp(vec4i v) {
    return ((u32)min(max(v.x, -128), 127) & 255u) | ((u32)min(max(v.y, -128), 127) & 255u) << 8u
        | ((u32)min(max(v.z, -128), 127) & 255u) << 16u | (u32)min(max(v.w, -128), 127) << 24u;
}
""",
    "_pack4xU8Clamp": """
u32 _pack4xU8Clamp(vec4u v) {
    return min(v.x, 255u) | min(v.y, 255u) << 8u | min(v.z, 255u) << 16u | min(v.w, 255u) << 24u;
}
""",
    "_unpack4xI8": """
vec4i _unpack4xI8(u32 bits) {
    vec4i v;
    v.x = (i32)(bits << 24u) >> 24u;
    v.y = (i32)(bits << 16u) >> 24u;
    v.z = (i32)(bits << 8u) >> 24u;
    v.w = (i32)bits >> 24u;
    return v;
}
""",
    "_unpack4xU8": """
vec4u _unpack4xU8(u32 bits) {
    vec4u v;
    v.x = bits & 255u;
    v.y = bits >> 8u & 255u;
    v.z = bits >> 16u & 255u;
    v.w = bits >> 24u;
    return v;
}
""",
    "_unpack4x8snorm": """
vec4f _unpack4x8snorm(u32 bits) {
    vec4f v;
    v.x = fmax@((f32)((i32)(bits << 24u) >> 24u) / 127.0f, -1.0f);
    v.y = fmax@((f32)((i32)(bits << 16u) >> 24u) / 127.0f, -1.0f);
    v.z = fmax@((f32)((i32)(bits << 8u) >> 24u) / 127.0f, -1.0f);
    v.w = fmax@((f32)((i32)bits >> 24u) / 127.0f, -1.0f);
    return v;
}
""",
    "_unpack4x8unorm": """
vec4f _unpack4x8unorm(u32 bits) {
    vec4f v;
    v.x = (f32)(bits & 255u) / 255.0f;
    v.y = (f32)(bits >> 8u & 255u) / 255.0f;
    v.z = (f32)(bits >> 16u & 255u) / 255.0f;
    v.w = (f32)(bits >> 24u) / 255.0f;
    return v;
}
""",
    "_unpack2x16snorm": """
vec2f _unpack2x16snorm(u32 bits) {
    vec2f v;
    v.x = fmax@((f32)((i32)(bits << 16u) >> 16u) / 32767.0f, -1.0f);
    v.y = fmax@((f32)((i32)bits >> 16u) / 32767.0f, -1.0f);
    return v;
}
""",
    "_unpack2x16unorm": """
vec2f _unpack2x16unorm(u32 bits) {
    vec2f v;
    v.x = (f32)(bits & 65535u) / 65535.0f;
    v.y = (f32)(bits >> 16u) / 65535.0f;
    return v;
}
""",
    "_unpack2x16float": """
vec2f _unpack2x16float(u32 bits) {
    vec2f v;
    v.x = _half_value(bits & 65535u);
    v.y = _half_value(bits >> 16u);
    return v;
}
""",
    "_dot4U8Packed": """
u32 _dot4U8Packed(u32 a, u32 b) {
    u32 sum = 0u;
    for (u32 shift = 0u; shift < 32u; shift += 8u) sum += (a >> shift & 255u) * (b >> shift & 255u);
    return sum;
}
""",
    "_dot4I8Packed": """
i32 _dot4I8Packed(u32 a, u32 b) {
    i32 sum = 0;
    for (u32 shift = 0u; shift < 32u; shift += 8u)
        sum += ((i32)(a << (24u - shift)) >> 24u) * ((i32)(b << (24u - shift)) >> 24u);
    return sum;
}
""",
}
"""Functions of both dialects."""

OPENCL_HELPERS = {
    "_trailing_zeros": """
u32 _trailing_zeros(u32 x) { return popcount(~x & (x - 1u)); }
""",
    "_first_trailing_bit": """
u32 _first_trailing_bit(u32 x) { return x == 0u ? ~0u : popcount(~x & (x - 1u)); }
""",
    "_first_leading_bit_i32": """
i32 _first_leading_bit_i32(i32 x) { return (i32)(31u - clz((u32)(x < 0 ? ~x : x))); }
""",
    "_half_bits": """
u32 _half_bits(f32 x) {
    ushort bits;
    vstore_half_rte(x, 0, (__private half *)&bits);
    return bits;
}
""",
    "_half_value": """
f32 _half_value(u32 bits) {
    const ushort low = (ushort)bits;
    return vload_half(0, (const __private half *)&low);
}
""",
    "_ballot": """
vec4u _ballot(bool x) { return (vec4u)((u32)x, 0u, 0u, 0u); }
""",
}

CUDA_HELPERS = {
    # These avoid cuda_fp16.h, which the compiler would have to find; an emulation on a CPU defines its own conversions.
    "_half_bits": """
u32 _half_bits(f32 x) {
#ifdef __CUDACC__
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    return emulated_half_bits(x);
#endif
}
""",
    "_half_value": """
f32 _half_value(u32 bits) {
#ifdef __CUDACC__
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
#else
    return emulated_half_value(bits);
#endif
}
""",
    "_f16": """
f16 _f16(f32 x) { return f16{(unsigned short)_half_bits(x)}; }
""",
    "_trailing_zeros": """
u32 _trailing_zeros(u32 x) { return (u32)__popc(~x & (x - 1u)); }
""",
    "_first_trailing_bit": """
u32 _first_trailing_bit(u32 x) { return x == 0u ? ~0u : (u32)__popc(~x & (x - 1u)); }
""",
    "_first_leading_bit_i32": """
i32 _first_leading_bit_i32(i32 x) { return 31 - __clz(x < 0 ? ~x : x); }
""",
    "_atomic_load": """
u32 _atomic_load(const u32 *at) { return *(const volatile u32 *)at; }
static __device__ i32 _atomic_load(const i32 *at) { return *(const volatile i32 *)at; }
""",
    "_atomic_store": """
void _atomic_store(u32 *at, u32 value) { *(volatile u32 *)at = value; }
static __device__ void _atomic_store(i32 *at, i32 value) { *(volatile i32 *)at = value; }
""",
}

_LANE = """
u32 _lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31u; }
"""

_BALLOT = """
vec4u _ballot(bool x) { return vec4u{{__ballot_sync(~0u, x), 0u, 0u, 0u}}; }
"""


def _reduction(name: str, combined: str) -> str:
    return f"""
template <class T>
static __device__ T _subgroup_{name}(T x) {{
    for (u32 mask = 16u; mask != 0u; mask >>= 1u) {{
        const T y = __shfl_xor_sync(~0u, x, mask);
        x = {combined};
    }}
    return x;
}}
"""


def _inclusive(name: str, symbol: str) -> str:
    return f"""
template <class T>
static __device__ T _inclusive_{name}(T x) {{
    for (u32 distance = 1u; distance < 32u; distance <<= 1u) {{
        const T y = __shfl_up_sync(~0u, x, distance);
        if (_lane() >= distance) x = y {symbol} x;
    }}
    return x;
}}
"""


def _exclusive(name: str, neutral: str) -> str:
    return f"""
template <class T>
static __device__ T _exclusive_{name}(T x) {{
    const T y = __shfl_up_sync(~0u, _inclusive_{name}(x), 1u);
    return _lane() == 0u ? (T){neutral} : y;
}}
"""


_REDUCTIONS = {
    "add": "x + y", "multiply": "x * y", "and": "x & y", "or": "x | y", "xor": "x ^ y",
    "max": "_larger(x, y)", "min": "_smaller(x, y)",
}  # fmt: skip

CUDA_SUBGROUPS = {
    "_lane": _LANE,
    "_ballot": _BALLOT,
    **{
        name: f"""
template <class T>
static __device__ T {name}(T x, T y) {{ return x == x && !(y {symbol} x) ? x : y; }}
"""
        for name, symbol in (("_larger", ">"), ("_smaller", "<"))
    },
    **{f"_subgroup_{name}": _reduction(name, combined) for name, combined in _REDUCTIONS.items()},
    **{f"_inclusive_{name}": _inclusive(name, symbol) for name, symbol in (("add", "+"), ("multiply", "*"))},
    **{f"_exclusive_{name}": _exclusive(name, neutral) for name, neutral in (("add", "0"), ("multiply", "1"))},
}
"""Subgroup functions over a warp, all 32 invocations of which are active."""
