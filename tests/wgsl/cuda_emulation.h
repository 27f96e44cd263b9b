// CUDA's words for a CPU: every thread of a block is a fiber, and all run in one thread of the host, in turns from
// barrier to barrier. Blocks follow one another; every other round goes backwards, so that a missing barrier shows.
#include <math.h>
#include <string.h>
#include <ucontext.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __constant__
#define __shared__ static
#define __launch_bounds__(threads)

struct Index {
    unsigned x, y, z;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

// Where some threads wait for one another.
struct Meeting {
    unsigned members = 0, waiting = 0, round = 0;
    unsigned long long slots[32];

    void release_if_complete() {
        if (waiting != 0 && waiting >= members) {
            waiting = 0;
            round++;
        }
    }
};

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Index index;
    unsigned number;
    bool is_done;
};

static std::vector<Fiber> fibers;
static std::vector<Meeting> warps;
static Meeting block;
static ucontext_t scheduler;
static Fiber *current;
static void (*entry)();

static void meet(Meeting &meeting) {
    const unsigned round = meeting.round;
    meeting.waiting++;
    meeting.release_if_complete();
    while (meeting.round == round) swapcontext(&current->context, &scheduler);
}

static Meeting &warp() { return warps[current->number / 32]; }

static void leave(Meeting &meeting) {
    meeting.members--;
    meeting.release_if_complete();
}

static void run() {
    entry();
    current->is_done = true;
    leave(block);
    leave(warp());
    swapcontext(&current->context, &scheduler);
}

// Where no thread waits for another they need no fibers, which take most of the time.
static void run_block_without_barriers() {
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) entry();
}

static void run_block() {
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    fibers.resize(threads);
    warps.assign((threads + 31) / 32, Meeting());
    block = Meeting();
    block.members = threads;
    for (unsigned n = 0; n < threads; n++) {
        Fiber &one = fibers[n];
        warps[n / 32].members++;
        one.number = n;
        one.is_done = false;
        one.index = {n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y};
        one.stack.resize(1 << 16);
        getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.data();
        one.context.uc_stack.ss_size = one.stack.size();
        makecontext(&one.context, run, 0);
    }
    for (unsigned left = threads, turn = 0; left != 0; turn++) {
        for (unsigned n = 0; n < threads; n++) {
            current = &fibers[turn % 2 ? threads - 1 - n : n];
            if (current->is_done) continue;
            threadIdx = current->index;
            swapcontext(&scheduler, &current->context);
            left -= current->is_done;
        }
    }
}

template <class... Arguments>
struct Launch {
    static std::tuple<std::remove_const_t<Arguments>...> *arguments;
    static void (*kernel)(Arguments...);
    static void call() { std::apply(kernel, *arguments); }
};
template <class... Arguments>
std::tuple<std::remove_const_t<Arguments>...> *Launch<Arguments...>::arguments;
template <class... Arguments>
void (*Launch<Arguments...>::kernel)(Arguments...);

template <class... Arguments>
using Packed = std::tuple<std::remove_const_t<Arguments>...>;

// A copy of the values of a kernel's arguments.
template <class... Arguments, size_t... numbers>
static Packed<Arguments...> packed(void (*)(Arguments...), void **from, std::index_sequence<numbers...>) {
    return Packed<Arguments...>(*(std::remove_const_t<Arguments> *)from[numbers]...);
}

template <class... Arguments>
static Packed<Arguments...> packed(void (*kernel)(Arguments...), void **from) {
    return packed(kernel, from, std::index_sequence_for<Arguments...>());
}

template <class... Arguments>
static void launch(
    void (*kernel)(Arguments...), Packed<Arguments...> *arguments, const unsigned *sizes, bool has_barriers = true
) {
    Launch<Arguments...>::arguments = arguments;
    Launch<Arguments...>::kernel = kernel;
    entry = Launch<Arguments...>::call;
    gridDim = {sizes[0], sizes[1], sizes[2]};
    blockDim = {sizes[3], sizes[4], sizes[5]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                has_barriers ? run_block() : run_block_without_barriers();
}

template <class... Arguments>
static void launch(void (*kernel)(Arguments...), void **from, const unsigned *sizes) {
    Packed<Arguments...> arguments = packed(kernel, from);
    launch(kernel, &arguments, sizes);
}

// What a lane of the warp has, for the lane that a function names; its own where there is none.
template <class T, class Source>
static T shuffle(T value, Source source) {
    Meeting &warp = emulation::warp();
    const unsigned lane = current->number % 32;
    memcpy(&warp.slots[lane], &value, sizeof value);
    meet(warp);
    const unsigned from = source(lane);
    if (from < 32) memcpy(&value, &warp.slots[from], sizeof value);
    meet(warp);
    return value;
}

template <class To, class From>
static To reinterpreted(From value) {
    static_assert(sizeof(To) == sizeof(From), "");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

}  // namespace emulation

static void __syncthreads() { emulation::meet(emulation::block); }

template <class T>
static T __shfl_sync(unsigned, T value, unsigned source, unsigned width = 32) {
    return emulation::shuffle(value, [=](unsigned lane) { return lane / width * width + source % width; });
}
template <class T>
static T __shfl_xor_sync(unsigned, T value, unsigned mask) {
    return emulation::shuffle(value, [=](unsigned lane) { return lane ^ mask; });
}
template <class T>
static T __shfl_up_sync(unsigned, T value, unsigned by) {
    return emulation::shuffle(value, [=](unsigned lane) { return lane < by ? lane : lane - by; });
}
template <class T>
static T __shfl_down_sync(unsigned, T value, unsigned by) {
    return emulation::shuffle(value, [=](unsigned lane) { return lane + by < 32 ? lane + by : lane; });
}
static unsigned __ballot_sync(unsigned, int value) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; lane++) bits |= (__shfl_sync(~0u, value, lane) != 0 ? 1u : 0u) << lane;
    return bits;
}
static int __all_sync(unsigned mask, int value) { return __ballot_sync(mask, value) == ~0u; }
static int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }

template <class T>
static T changed(T *at, T value) {
    const T old = *at;
    *at = value;
    return old;
}
template <class T>
static T min(T a, T b) { return b < a ? b : a; }
template <class T>
static T max(T a, T b) { return a < b ? b : a; }
template <class T>
static T atomicAdd(T *at, T value) { return changed(at, (T)((unsigned)*at + (unsigned)value)); }
template <class T>
static T atomicSub(T *at, T value) { return changed(at, (T)((unsigned)*at - (unsigned)value)); }
template <class T>
static T atomicMax(T *at, T value) { return changed(at, max(*at, value)); }
template <class T>
static T atomicMin(T *at, T value) { return changed(at, min(*at, value)); }
template <class T>
static T atomicAnd(T *at, T value) { return changed(at, (T)(*at & value)); }
template <class T>
static T atomicOr(T *at, T value) { return changed(at, (T)(*at | value)); }
template <class T>
static T atomicXor(T *at, T value) { return changed(at, (T)(*at ^ value)); }
template <class T>
static T atomicExch(T *at, T value) { return changed(at, value); }
template <class T>
static T atomicCAS(T *at, T old, T value) { return changed(at, *at == old ? value : *at); }

static unsigned __float_as_uint(float x) { return emulation::reinterpreted<unsigned>(x); }
static int __float_as_int(float x) { return emulation::reinterpreted<int>(x); }
static float __uint_as_float(unsigned x) { return emulation::reinterpreted<float>(x); }
static float __int_as_float(int x) { return emulation::reinterpreted<float>(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
static unsigned emulated_half_bits(float x) { return emulation::reinterpreted<unsigned short>((_Float16)x); }
static float emulated_half_value(unsigned bits) {
    return (float)emulation::reinterpreted<_Float16>((unsigned short)bits);
}
