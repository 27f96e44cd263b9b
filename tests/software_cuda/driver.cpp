// A CUDA driver in software: the entry points that the device `cuda` uses, for machines without a GPU of NVIDIA.
//
// It is no GPU and no NVIDIA driver. It is what the signatures and the documentation of the driver API say, so that the
// device's own code can run: cuda.bindings loads this library as libcuda.so.1 and asks it for its functions. Kernels
// run on the CPU, by g++ and cuda_emulation.h, of the CUDA text that the image was compiled from (`__init__.py` notes
// which that was). Speed, real concurrency, the memory model and machine code are not in it.
//
// It is as lazy and as strict as the documentation allows, so that mistakes show. Nothing that is enqueued in a stream
// runs before somebody waits for it; asynchronous copies take page-locked memory of the host alone; addresses have to
// lie in what was allocated; every call needs an initialised driver and, where CUDA does, a current context; new memory
// holds garbage; an error of a kernel stays.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

typedef int Result;
typedef uint64_t Address;

enum : Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
};

static const struct { Result code; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// What it pretends to be; tests set it, by `software_cuda_set` or in the variable SOFTWARE_CUDA.
static std::map<std::string, int64_t> settings = {
    {"init", 0}, {"version", 13000}, {"devices", 0}, {"capability", 90}, {"memory", 2ll << 30}, {"pools", 1},
    {"prohibited", 0}, {"fault", 0}, {"instantiate", 0},
};
static std::map<std::string, int64_t> counts;  // of calls, by name; and of what there is, by its kind

typedef std::function<Result()> Work;

struct Context {
    int device = 0, users = 0;
};

struct Graph {
    std::vector<Work> nodes;
};

struct Stream {
    Context *context;
    std::deque<Work> queue;
    std::unique_ptr<Graph> captured;
    bool is_spoiled = false;
};

// One time that an event was recorded.
struct Occurrence {
    Stream *stream;
    bool has_happened = false;
    double seconds = 0;
};

struct Event {
    bool is_timed;
    std::shared_ptr<Occurrence> last;
};

struct Module {
    void *library = nullptr;
    bool is_loaded = false;
    void *(*pack)(void **) = nullptr;
    void (*drop)(void *) = nullptr;
    void (*run)(void *, const unsigned *) = nullptr;
};

static bool is_initialised = false;
static Result sticky = SUCCESS;
static std::vector<Context> contexts(16);
static thread_local std::vector<Context *> current;
static std::map<Address, size_t> device_memory, host_memory;
static size_t used = 0;
static std::map<Stream *, std::unique_ptr<Stream>> streams;
static Stream legacy, per_thread;

static Stream *stream_of(void *handle) {
    if (handle == nullptr || handle == (void *)1) return &legacy;
    if (handle == (void *)2) return &per_thread;
    auto found = streams.find((Stream *)handle);
    return found == streams.end() ? nullptr : found->second.get();
}

static bool has(const std::map<Address, size_t> &memory, Address at, size_t size) {
    auto next = memory.upper_bound(at);
    if (next == memory.begin()) return false;
    auto [start, length] = *--next;
    return at - start <= length && size <= length - (at - start);
}

static Result run_all(Stream *stream) {
    while (!stream->queue.empty() && sticky == SUCCESS) {
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        Result result = work();
        if (result != SUCCESS) sticky = result;
    }
    return sticky;
}

// What every function checks that needs a context.
static Result ready() {
    if (!is_initialised) return NOT_INITIALIZED;
    if (current.empty() || current.back() == nullptr) return INVALID_CONTEXT;
    return sticky;
}

#define CALLED(condition)                            \
    counts[__func__]++;                              \
    if (Result wrong = (condition)) return wrong
#define REQUIRE(condition, otherwise) \
    if (!(condition)) return otherwise

static Result enqueue(Stream *stream, Work work) {
    if (stream->captured)
        stream->captured->nodes.push_back(std::move(work));
    else
        stream->queue.push_back(std::move(work));
    return SUCCESS;
}

// What may not be called while this thread captures.
static Result uncaptured() {
    Result result = SUCCESS;
    for (auto &[_, one] : streams)
        if (one->captured) one->is_spoiled = true, result = CAPTURE_UNSUPPORTED;
    return result;
}

extern "C" {

void software_cuda_set(const char *name, int64_t value) { settings[name] = value; }

int64_t software_cuda_count(const char *name) { return counts[name]; }

// As in a process that was started again.
void software_cuda_heal() {
    for (auto &[_, one] : streams) one->queue.clear();
    sticky = SUCCESS;
}

// For libraries in software that work in the order of a stream, as cuBLAS.
int software_cuda_enqueue(void *handle, void (*function)(void *), void *data) {
    Stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    return enqueue(stream, [=]() -> Result { return function(data), SUCCESS; });
}

static Result cuInit(unsigned flags) {
    counts["cuInit"]++;
    if (const char *text = getenv("SOFTWARE_CUDA")) {
        std::string left = text;
        while (!left.empty()) {
            std::string one = left.substr(0, left.find(','));
            left.erase(0, one.size() + 1);
            settings[one.substr(0, one.find('='))] = atoll(one.c_str() + one.find('=') + 1);
        }
    }
    if (settings["init"]) return settings["init"];
    REQUIRE(flags == 0, INVALID_VALUE);
    REQUIRE(settings["devices"] > 0 || is_initialised, NO_DEVICE);
    is_initialised = true;
    return SUCCESS;
}

static Result cuGetErrorName(Result code, const char **name) {
    for (auto &one : ERRORS)
        if (one.code == code) return *name = one.name, SUCCESS;
    return *name = nullptr, INVALID_VALUE;
}

static Result cuGetErrorString(Result code, const char **text) {
    for (auto &one : ERRORS)
        if (one.code == code) return *text = one.text, SUCCESS;
    return *text = nullptr, INVALID_VALUE;
}

static Result cuDriverGetVersion(int *version) { return *version = settings["version"], SUCCESS; }

static Result known(int device) {
    REQUIRE(is_initialised, NOT_INITIALIZED);
    return device >= 0 && device < settings["devices"] ? SUCCESS : INVALID_DEVICE;
}

static Result cuDeviceGetCount(int *count) {
    REQUIRE(is_initialised, NOT_INITIALIZED);
    return *count = settings["devices"], SUCCESS;
}

static Result cuDeviceGet(int *device, int ordinal) {
    CALLED(known(ordinal));
    return *device = ordinal, SUCCESS;
}

static Result cuDeviceGetName(char *name, int length, int device) {
    CALLED(known(device));
    return snprintf(name, length, "CUDA in software"), SUCCESS;
}

static Result cuDeviceTotalMem(size_t *bytes, int device) {
    CALLED(known(device));
    return *bytes = settings["memory"], SUCCESS;
}

static Result cuDeviceGetPCIBusId(char *text, int length, int device) {
    CALLED(known(device));
    return snprintf(text, length, "0000:%02X:00.0", 0x3a + device), SUCCESS;
}

static Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALLED(known(device));
    switch (attribute) {
        case 1: *value = 1024; break;                              // MAX_THREADS_PER_BLOCK
        case 8: *value = 48 << 10; break;                          // MAX_SHARED_MEMORY_PER_BLOCK
        case 18: *value = 0; break;                                // INTEGRATED
        case 20: *value = settings["prohibited"] ? 2 : 0; break;   // COMPUTE_MODE
        case 75: *value = settings["capability"] / 10; break;      // COMPUTE_CAPABILITY_MAJOR
        case 76: *value = settings["capability"] % 10; break;      // COMPUTE_CAPABILITY_MINOR
        case 115: *value = settings["pools"]; break;               // MEMORY_POOLS_SUPPORTED
        default: return INVALID_VALUE;
    }
    return SUCCESS;
}

static Result cuDevicePrimaryCtxRetain(Context **context, int device) {
    CALLED(known(device));
    contexts[device].device = device;
    contexts[device].users++;
    counts["contexts"]++;
    return *context = &contexts[device], SUCCESS;
}

static Result cuDevicePrimaryCtxRelease(int device) {
    REQUIRE(contexts[device].users > 0, INVALID_CONTEXT);
    contexts[device].users--;
    counts["contexts"]--;
    return SUCCESS;
}

static Result cuCtxPushCurrent(Context *context) {
    REQUIRE(is_initialised, NOT_INITIALIZED);
    REQUIRE(context && context->users > 0, INVALID_CONTEXT);
    counts["pushed contexts"]++;
    return current.push_back(context), SUCCESS;
}

static Result cuCtxPopCurrent(Context **context) {
    REQUIRE(!current.empty(), INVALID_CONTEXT);
    *context = current.back();
    counts["pushed contexts"]--;
    return current.pop_back(), SUCCESS;
}

static Result cuCtxSynchronize() {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    for (auto &[_, one] : streams)
        if (one->context == current.back() && run_all(one.get())) return sticky;
    run_all(&legacy);
    return run_all(&per_thread);
}

static Result cuStreamCreate(Stream **stream, unsigned flags) {
    CALLED(ready());
    REQUIRE(flags <= 1, INVALID_VALUE);
    auto made = std::make_unique<Stream>();
    *stream = made.get();
    made->context = current.back();
    streams[made.get()] = std::move(made);
    counts["streams"]++;
    return SUCCESS;
}

static Result cuStreamDestroy(void *handle) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && handle, INVALID_HANDLE);
    run_all(stream);
    streams.erase(stream);
    counts["streams"]--;
    return SUCCESS;
}

static Result cuStreamSynchronize(void *handle) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    REQUIRE(!stream->captured, uncaptured());
    return run_all(stream);
}

static Result cuEventCreate(Event **event, unsigned flags) {
    CALLED(ready());
    *event = new Event{(flags & 2) == 0, nullptr};
    counts["events"]++;
    return SUCCESS;
}

static Result cuEventDestroy(Event *event) {
    CALLED(ready());
    delete event;
    counts["events"]--;
    return SUCCESS;
}

static Result cuEventRecord(Event *event, void *handle) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && event, INVALID_HANDLE);
    auto one = event->last = std::make_shared<Occurrence>(Occurrence{stream});
    return enqueue(stream, [one]() -> Result {
        one->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
        return one->has_happened = true, SUCCESS;
    });
}

static Result wait_for(const std::shared_ptr<Occurrence> &one) {
    return one && !one->has_happened ? run_all(one->stream) : SUCCESS;
}

static Result cuEventSynchronize(Event *event) {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    return wait_for(event->last);
}

static Result cuEventQuery(Event *event) {
    CALLED(ready());
    return !event->last || event->last->has_happened ? SUCCESS : NOT_READY;
}

static Result cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    CALLED(ready());
    REQUIRE(start->last && end->last && start->is_timed && end->is_timed, INVALID_HANDLE);
    REQUIRE(start->last->has_happened && end->last->has_happened, NOT_READY);
    return *milliseconds = (end->last->seconds - start->last->seconds) * 1e3, SUCCESS;
}

static Result cuStreamWaitEvent(void *handle, Event *event, unsigned flags) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && event && flags == 0, INVALID_HANDLE);
    auto one = event->last;
    return enqueue(stream, [one]() -> Result { return wait_for(one); });
}

static Result give(Address *address, size_t bytes) {
    REQUIRE(bytes, INVALID_VALUE);
    if (used + bytes > (size_t)settings["memory"])
        for (auto &[_, one] : streams) run_all(one.get());  // frees among it
    REQUIRE(used + bytes <= (size_t)settings["memory"], OUT_OF_MEMORY);
    void *made = aligned_alloc(512, (bytes + 511) / 512 * 512);
    REQUIRE(made, OUT_OF_MEMORY);
    memset(made, 0xa5, bytes);
    *address = (Address)made;
    device_memory[*address] = bytes;
    used += bytes;
    counts["allocations"]++;
    return SUCCESS;
}

static Result take(Address address) {
    auto found = device_memory.find(address);
    REQUIRE(found != device_memory.end(), INVALID_VALUE);
    memset((void *)address, 0xdd, found->second);
    used -= found->second;
    device_memory.erase(found);
    free((void *)address);
    counts["allocations"]--;
    return SUCCESS;
}

static Result cuMemAlloc(Address *address, size_t bytes) {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    return give(address, bytes);
}

static Result cuMemFree(Address address) {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    for (auto &[_, one] : streams)
        if (run_all(one.get())) return sticky;
    return take(address);
}

static Result cuMemAllocAsync(Address *address, size_t bytes, void *handle) {
    CALLED(ready());
    REQUIRE(settings["pools"], NOT_SUPPORTED);
    REQUIRE(stream_of(handle), INVALID_HANDLE);
    return give(address, bytes);
}

static Result cuMemFreeAsync(Address address, void *handle) {
    CALLED(ready());
    REQUIRE(settings["pools"], NOT_SUPPORTED);
    Stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    REQUIRE(device_memory.count(address), INVALID_VALUE);
    return enqueue(stream, [=]() -> Result { return take(address); });
}

static Result cuMemHostAlloc(void **made, size_t bytes, unsigned) {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    *made = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*made, 0xa5, bytes);
    host_memory[(Address)*made] = bytes;
    counts["host allocations"]++;
    return SUCCESS;
}

static Result cuMemFreeHost(void *address) {
    CALLED(ready());
    REQUIRE(host_memory.erase((Address)address), INVALID_VALUE);
    free(address);
    counts["host allocations"]--;
    return SUCCESS;
}

static Result cuMemsetD32Async(Address target, unsigned value, size_t words, void *handle) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    REQUIRE(has(device_memory, target, 4 * words), INVALID_VALUE);
    return enqueue(stream, [=]() -> Result { return std::fill_n((unsigned *)target, words, value), SUCCESS; });
}

static Result move(Address target, Address source, size_t bytes, void *handle) {
    Stream *stream = stream_of(handle);
    REQUIRE(stream, INVALID_HANDLE);
    return enqueue(stream, [=]() -> Result {
        bool is_there = (has(device_memory, target, bytes) || has(host_memory, target, bytes)) &&
                        (has(device_memory, source, bytes) || has(host_memory, source, bytes));
        REQUIRE(is_there, ILLEGAL_ADDRESS);
        return memcpy((void *)target, (void *)source, bytes), SUCCESS;
    });
}

static Result cuMemcpyDtoDAsync(Address target, Address source, size_t bytes, void *handle) {
    CALLED(ready());
    REQUIRE(has(device_memory, target, bytes) && has(device_memory, source, bytes), INVALID_VALUE);
    return move(target, source, bytes, handle);
}

static Result cuMemcpyHtoDAsync(Address target, void *source, size_t bytes, void *handle) {
    CALLED(ready());
    REQUIRE(has(device_memory, target, bytes) && has(host_memory, (Address)source, bytes), INVALID_VALUE);
    return move(target, (Address)source, bytes, handle);
}

static Result cuMemcpyDtoHAsync(void *target, Address source, size_t bytes, void *handle) {
    CALLED(ready());
    REQUIRE(has(device_memory, source, bytes) && has(host_memory, (Address)target, bytes), INVALID_VALUE);
    return move((Address)target, source, bytes, handle);
}

// Modules.

static uint32_t crc32(const uint8_t *bytes, size_t size) {
    uint32_t crc = ~0u;
    for (size_t n = 0; n < size; n++) {
        crc ^= bytes[n];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

// Of a cubin, which is an ELF file; or of PTX, which ends with a zero.
static size_t size_of(const uint8_t *image) {
    if (memcmp(image, "\x7f" "ELF", 4) != 0) return strlen((const char *)image);
    uint64_t sections, end = 0;
    memcpy(&sections, image + 0x28, 8);
    uint16_t size, count;
    memcpy(&size, image + 0x3a, 2);
    memcpy(&count, image + 0x3c, 2);
    end = sections + (uint64_t)size * count;
    uint64_t programs;
    uint16_t program_size, program_count;
    memcpy(&programs, image + 0x20, 8);
    memcpy(&program_size, image + 0x36, 2);
    memcpy(&program_count, image + 0x38, 2);
    if (programs + program_size * program_count > end) end = programs + program_size * program_count;
    for (int n = 0; n < count; n++) {
        const uint8_t *section = image + sections + n * size;
        uint32_t kind;
        uint64_t at, length;
        memcpy(&kind, section + 4, 4);
        memcpy(&at, section + 0x18, 8);
        memcpy(&length, section + 0x20, 8);
        if (kind != 8 && at + length > end) end = at + length;  // 8 is of no bytes
    }
    return end;
}

static Result cuModuleLoadData(Module **module, const void *image) {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    size_t size = size_of((const uint8_t *)image);
    char name[64];
    snprintf(name, sizeof name, "/%zu-%08x", size, crc32((const uint8_t *)image, size));
    std::string path = std::string(getenv("SOFTWARE_CUDA_FOLDER")) + name;
    FILE *noted = fopen((path + ".arch").c_str(), "r");
    REQUIRE(noted, INVALID_IMAGE);
    int capability = 0;
    char kind[8] = "";
    int read = fscanf(noted, "%d %7s", &capability, kind);
    fclose(noted);
    REQUIRE(read == 2, INVALID_IMAGE);
    const int own = settings["capability"];
    const bool fits = kind[0] == 'p' ? capability <= own : capability / 10 == own / 10 && capability <= own;
    REQUIRE(fits, NO_BINARY_FOR_GPU);
    auto made = std::make_unique<Module>();
    made->library = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!made->library) {
        const std::string command = std::string(getenv("SOFTWARE_CUDA_COMPILE")) + " " + path;
        REQUIRE(system(command.c_str()) == 0, INVALID_IMAGE);
        made->library = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    REQUIRE(made->library, INVALID_IMAGE);
    made->pack = (void *(*)(void **))dlsym(made->library, "pack");
    made->drop = (void (*)(void *))dlsym(made->library, "drop");
    made->run = (void (*)(void *, const unsigned *))dlsym(made->library, "run");
    counts["modules"]++;
    return *module = made.release(), SUCCESS;
}

static Result cuModuleUnload(Module *module) {
    CALLED(ready());
    for (auto &[_, one] : streams) run_all(one.get());
    dlclose(module->library);
    delete module;
    counts["modules"]--;
    return SUCCESS;
}

static Result cuModuleGetFunction(Module **function, Module *module, const char *name) {
    CALLED(ready());
    REQUIRE(module && strcmp(name, "main_") == 0, NOT_FOUND);
    return *function = module, SUCCESS;
}

static Result cuFuncLoad(Module *function) {
    CALLED(ready());
    if (Result wrong = uncaptured()) return wrong;
    return function->is_loaded = true, SUCCESS;
}

static Result cuLaunchKernel(
    Module *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
    unsigned shared, void *handle, void **arguments, void **extra
) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && function, INVALID_HANDLE);
    REQUIRE(grid_x && grid_y && grid_z && x && y && z && !extra && !shared, INVALID_VALUE);
    REQUIRE(grid_x <= 0x7fffffffu && grid_y <= 65535 && grid_z <= 65535, INVALID_VALUE);
    REQUIRE(x <= 1024 && y <= 1024 && z <= 64 && (uint64_t)x * y * z <= 1024, INVALID_VALUE);
    REQUIRE(function->is_loaded || !stream->captured, uncaptured());  // as it may be where CUDA loads late
    std::shared_ptr<void> packed(function->pack(arguments), function->drop);
    return enqueue(stream, [=]() -> Result {
        if (Result fault = settings["fault"]) {
            settings["fault"] = 0;
            return fault;
        }
        const unsigned sizes[6] = {grid_x, grid_y, grid_z, x, y, z};
        return function->run(packed.get(), sizes), counts["kernels"]++, SUCCESS;
    });
}

static Result cuStreamBeginCapture(void *handle, int mode) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && handle > (void *)2, INVALID_VALUE);
    REQUIRE(!stream->captured && mode >= 0 && mode <= 2, INVALID_VALUE);
    stream->captured = std::make_unique<Graph>();
    stream->is_spoiled = false;
    return SUCCESS;
}

static Result cuStreamEndCapture(void *handle, Graph **graph) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && stream->captured, INVALID_VALUE);
    auto made = std::move(stream->captured);
    if (stream->is_spoiled) return *graph = nullptr, CAPTURE_INVALIDATED;
    counts["graphs"]++;
    return *graph = made.release(), SUCCESS;
}

static Result cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, unsigned long long flags) {
    CALLED(ready());
    REQUIRE(graph && flags == 0, INVALID_VALUE);
    REQUIRE(!settings["instantiate"], (Result)settings["instantiate"]);
    counts["executables"]++;
    return *executable = new Graph(*graph), SUCCESS;
}

static Result cuGraphDestroy(Graph *graph) {
    CALLED(ready());
    delete graph;
    counts["graphs"]--;
    return SUCCESS;
}

static Result cuGraphExecDestroy(Graph *executable) {
    CALLED(ready());
    delete executable;
    counts["executables"]--;
    return SUCCESS;
}

static Result cuGraphLaunch(Graph *executable, void *handle) {
    CALLED(ready());
    Stream *stream = stream_of(handle);
    REQUIRE(stream && executable, INVALID_HANDLE);
    for (auto &node : executable->nodes) enqueue(stream, node);
    return SUCCESS;
}

Result cuGetProcAddress_v2(const char *symbol, void **found, int, uint64_t, int *status) {
#define ENTRY(name) {#name, (void *)name}
    static const std::map<std::string, void *> entries = {
        ENTRY(cuInit), ENTRY(cuGetErrorName), ENTRY(cuGetErrorString), ENTRY(cuDriverGetVersion),
        ENTRY(cuDeviceGetCount), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetName), ENTRY(cuDeviceTotalMem),
        ENTRY(cuDeviceGetPCIBusId), ENTRY(cuDeviceGetAttribute), ENTRY(cuDevicePrimaryCtxRetain),
        ENTRY(cuDevicePrimaryCtxRelease), ENTRY(cuCtxPushCurrent), ENTRY(cuCtxPopCurrent), ENTRY(cuCtxSynchronize),
        ENTRY(cuStreamCreate), ENTRY(cuStreamDestroy), ENTRY(cuStreamSynchronize), ENTRY(cuStreamWaitEvent),
        ENTRY(cuStreamBeginCapture), ENTRY(cuStreamEndCapture), ENTRY(cuEventCreate), ENTRY(cuEventDestroy),
        ENTRY(cuEventRecord), ENTRY(cuEventSynchronize), ENTRY(cuEventQuery), ENTRY(cuEventElapsedTime),
        ENTRY(cuMemAlloc), ENTRY(cuMemFree), ENTRY(cuMemAllocAsync), ENTRY(cuMemFreeAsync), ENTRY(cuMemHostAlloc),
        ENTRY(cuMemFreeHost), ENTRY(cuMemsetD32Async), ENTRY(cuMemcpyDtoDAsync), ENTRY(cuMemcpyHtoDAsync),
        ENTRY(cuMemcpyDtoHAsync), ENTRY(cuFuncLoad), ENTRY(cuModuleLoadData), ENTRY(cuModuleUnload),
        ENTRY(cuModuleGetFunction), ENTRY(cuLaunchKernel), ENTRY(cuGraphInstantiateWithFlags), ENTRY(cuGraphDestroy),
        ENTRY(cuGraphExecDestroy), ENTRY(cuGraphLaunch),
    };
    auto one = entries.find(symbol);
    *found = one == entries.end() ? nullptr : one->second;
    if (status) *status = *found ? 0 : 1;
    return *found ? SUCCESS : NOT_FOUND;
}

}  // extern "C"
