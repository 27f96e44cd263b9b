// cuBLAS in software, as little of it as `native_backends/cuda_products.py` calls: a loop over float32, enqueued in the
// stream of the driver in software. Factors are rounded as the compute type says that tensor cores may round them, and
// partial sums as the math mode allows. Types are those that the documentation lists, and it wants elements aligned.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { FLOAT32 = 0, FLOAT16 = 2, BFLOAT16 = 14 };                // cudaDataType_t
enum { IN_FLOAT32 = 68, IN_BFLOAT16 = 75, IN_TF32 = 77 };        // cublasComputeType_t
enum { DEFAULT_MATH = 0, NO_REDUCED_PRECISION_REDUCTION = 16 };  // cublasMath_t

struct Handle {
    void *stream = nullptr, *workspace = nullptr;
    int math = DEFAULT_MATH;
};

struct Product {
    bool is_transposed_a, is_transposed_b;
    int m, n, k, lda, ldb, ldc, count, compute, type, type_c, math;
    const void *a, *b;
    void *c;
    long long stride_a, stride_b, stride_c;
};

static int64_t calls = 0, handles = 0;
static int status = SUCCESS;  // of setting the workspace, which is the last of a start

static float without(float x, int dropped) {  // the last bits, to the nearest, ties to even
    if (dropped == 0 || !isfinite(x)) return x;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
    bits &= ~((1u << dropped) - 1);
    memcpy(&x, &bits, 4);
    return x;
}

static float rounded(float x, int compute) {  // TF32 keeps 10 bits behind the point, BF16 7
    return without(x, compute == IN_TF32 ? 13 : compute == IN_BFLOAT16 ? 16 : 0);
}

static float load(const void *from, int64_t at, int type) {
    if (type == FLOAT32) return ((const float *)from)[at];
    if (type == FLOAT16) return ((const _Float16 *)from)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void store(void *to, int64_t at, int type, float x) {
    if (type == FLOAT32)
        ((float *)to)[at] = x;
    else if (type == FLOAT16)
        ((_Float16 *)to)[at] = x;
    else {
        x = without(x, 16);
        memcpy((uint16_t *)to + at, (char *)&x + 2, 2);
    }
}

static float in_type(float x, int type) {
    float stored;
    store(&stored, 0, type, x);
    return load(&stored, 0, type);
}

static float sum(const Product *p, int one, int i, int j, int first, int end) {  // some of the summands
    float total = 0;
    for (int l = first; l < end; l++) {
        const int64_t at_a = p->is_transposed_a ? l + (int64_t)i * p->lda : i + (int64_t)l * p->lda;
        const int64_t at_b = p->is_transposed_b ? j + (int64_t)l * p->ldb : l + (int64_t)j * p->ldb;
        const float a = load(p->a, one * p->stride_a + at_a, p->type), b = load(p->b, one * p->stride_b + at_b, p->type);
        total += rounded(a, p->compute) * rounded(b, p->compute);
    }
    return total;
}

static void run(void *data) {
    Product *p = (Product *)data;  // it stays: a graph may run it again
    for (int one = 0; one < p->count; one++)
        for (int i = 0; i < p->m; i++)
            for (int j = 0; j < p->n; j++) {
                float total;
                if (p->math & NO_REDUCED_PRECISION_REDUCTION)
                    total = sum(p, one, i, j, 0, p->k);
                else  // a sum may be split, and its parts kept in the type of C
                    total = in_type(sum(p, one, i, j, 0, p->k / 2), p->type_c) +
                            in_type(sum(p, one, i, j, p->k / 2, p->k), p->type_c);
                store(p->c, one * p->stride_c + i + (int64_t)j * p->ldc, p->type_c, total);
            }
}

static bool is_supported(int type_a, int type_b, int type_c, int compute) {
    if (type_a != FLOAT32 && type_a != FLOAT16 && type_a != BFLOAT16) return false;
    if (compute != IN_FLOAT32 && (type_a != FLOAT32 || (compute != IN_BFLOAT16 && compute != IN_TF32))) return false;
    return type_b == type_a && (type_c == type_a || type_c == FLOAT32);
}

static bool is_aligned(const void *address, int type) { return (uintptr_t)address % (type == FLOAT32 ? 4 : 2) == 0; }

extern "C" {

int64_t software_cublas_calls() { return calls; }

int64_t software_cublas_handles() { return handles; }

void software_cublas_set_status(int value) { status = value; }

int cublasCreate_v2(Handle **handle) { return *handle = new Handle, handles++, SUCCESS; }

int cublasDestroy_v2(Handle *handle) { return delete handle, handles--, SUCCESS; }

int cublasSetStream_v2(Handle *handle, void *stream) {
    handle->stream = stream;
    handle->workspace = nullptr;
    return SUCCESS;
}

int cublasSetMathMode(Handle *handle, int math) {
    if (math & ~NO_REDUCED_PRECISION_REDUCTION) return INVALID_VALUE;  // others are not needed
    return handle->math = math, SUCCESS;
}

int cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t size) {
    handle->workspace = workspace;
    return workspace && size ? status : INVALID_VALUE;
}

int cublasGemmStridedBatchedEx(
    Handle *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
    long long stride_a, const void *b, int type_b, int ldb, long long stride_b, const void *beta, void *c, int type_c,
    int ldc, long long stride_c, int count, int compute, int algorithm
) {
    if (!handle || !handle->stream || !handle->workspace) return NOT_INITIALIZED;
    if (!is_supported(type_a, type_b, type_c, compute)) return NOT_SUPPORTED;
    if (algorithm != -1 || *(float *)alpha != 1 || *(float *)beta != 0) return INVALID_VALUE;
    if (!is_aligned(a, type_a) || !is_aligned(b, type_b) || !is_aligned(c, type_c)) return INVALID_VALUE;
    if (op_a < 0 || op_a > 1 || op_b < 0 || op_b > 1 || m < 0 || n < 0 || k < 0 || count < 0) return INVALID_VALUE;
    if (lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1) return INVALID_VALUE;
    auto enqueue = (int (*)(void *, void (*)(void *), void *))dlsym(RTLD_DEFAULT, "software_cuda_enqueue");
    calls++;
    auto product = new Product{op_a == 1, op_b == 1, m, n, k, lda, ldb, ldc, count, compute, type_a, type_c,
                               handle->math, a, b, c, stride_a, stride_b, stride_c};
    return enqueue && enqueue(handle->stream, run, product) == 0 ? SUCCESS : EXECUTION_FAILED;
}

}  // extern "C"
