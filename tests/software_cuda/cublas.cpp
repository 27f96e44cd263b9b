// cuBLAS in software, as little of it as `native_backends/cuda_products.py` calls: a loop over float32, enqueued in the
// stream of the driver in software. Factors are rounded as the compute type says that tensor cores may round them.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

struct Handle {
    void *stream = nullptr, *workspace = nullptr;
};

struct Product {
    bool is_transposed_a, is_transposed_b;
    int m, n, k, lda, ldb, ldc, count, compute;
    const float *a, *b;
    float *c;
    long long stride_a, stride_b, stride_c;
};

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, FLOAT32 = 0 };

static int64_t calls = 0, handles = 0;
static int status = SUCCESS;  // of setting the workspace, which is the last of a start

static float rounded(float x, int compute) {
    const int dropped = compute == 77 ? 13 : compute == 75 ? 16 : 0;  // TF32 keeps 10 bits behind the point, BF16 7
    if (dropped == 0 || !isfinite(x)) return x;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
    bits &= ~((1u << dropped) - 1);
    memcpy(&x, &bits, 4);
    return x;
}

static void run(void *data) {
    Product *p = (Product *)data;  // it stays: a graph may run it again
    for (int one = 0; one < p->count; one++)
        for (int i = 0; i < p->m; i++)
            for (int j = 0; j < p->n; j++) {
                float sum = 0;
                for (int l = 0; l < p->k; l++) {
                    const int64_t at_a = p->is_transposed_a ? l + (int64_t)i * p->lda : i + (int64_t)l * p->lda;
                    const int64_t at_b = p->is_transposed_b ? j + (int64_t)l * p->ldb : l + (int64_t)j * p->ldb;
                    const float a = p->a[one * p->stride_a + at_a], b = p->b[one * p->stride_b + at_b];
                    sum += rounded(a, p->compute) * rounded(b, p->compute);
                }
                p->c[one * p->stride_c + i + (int64_t)j * p->ldc] = sum;
            }
}

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
    const bool is_float = type_a == FLOAT32 && type_b == FLOAT32 && type_c == FLOAT32;
    const bool is_known = compute == 68 || compute == 75 || compute == 77;
    if (!is_float || !is_known || algorithm != -1 || *(float *)alpha != 1 || *(float *)beta != 0) return INVALID_VALUE;
    if (op_a < 0 || op_a > 1 || op_b < 0 || op_b > 1 || m < 0 || n < 0 || k < 0 || count < 0) return INVALID_VALUE;
    if (lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1) return INVALID_VALUE;
    auto enqueue = (int (*)(void *, void (*)(void *), void *))dlsym(RTLD_DEFAULT, "software_cuda_enqueue");
    calls++;
    auto product = new Product{op_a == 1, op_b == 1, m, n, k, lda, ldb, ldc, count, compute, (const float *)a,
                               (const float *)b, (float *)c, stride_a, stride_b, stride_c};
    return enqueue && enqueue(handle->stream, run, product) == 0 ? SUCCESS : EXECUTION_FAILED;
}

}  // extern "C"
