/* GEMMs C = A B^T in bf16 for tests of the whole judge, right and wrong, in plain C over the TVM-FFI C ABI. */
#include <stdint.h>
#include <string.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#define CANDIDATE(name)                                                                                                \
    int __tvm_ffi_##name(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);                    \
    int __tvm_ffi_##name(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result)

static float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t *gemm(const TVMFFIAny *arguments, int64_t skipped) {
    const DLTensor *a = arguments[0].v_ptr, *b = arguments[1].v_ptr, *c = arguments[2].v_ptr;
    const uint16_t *left = a->data, *right = b->data;
    uint16_t *out = c->data;
    int64_t n = b->shape[0], k = a->shape[1];
    for (int64_t i = 0; i < a->shape[0]; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t x = skipped; x < k; x++)
                sum += widen(left[i * k + x]) * widen(right[j * k + x]);
            out[i * n + j] = narrow(sum);
        }
    return out;
}

CANDIDATE(honest) {
    (void)self, (void)count, (void)result;
    gemm(arguments, 0);
    return 0;
}

CANDIDATE(skips_a_step) {
    (void)self, (void)count, (void)result;
    gemm(arguments, 16);
    return 0;
}

CANDIDATE(writes_before_its_output) {
    (void)self, (void)count, (void)result;
    gemm(arguments, 0)[-1] = 0;
    return 0;
}

CANDIDATE(changes_its_input) {
    (void)self, (void)count, (void)result;
    gemm(arguments, 0);
    ((uint16_t *)((const DLTensor *)arguments[1].v_ptr)->data)[7] ^= 1;
    return 0;
}

CANDIDATE(hangs) {
    (void)self, (void)arguments, (void)count, (void)result;
    for (;;)
        pause();
}

CANDIDATE(exits) {
    (void)self, (void)arguments, (void)count, (void)result;
    _exit(0);
}
