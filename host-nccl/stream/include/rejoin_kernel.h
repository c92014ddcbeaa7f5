/*
 * Kernels of Rejoin's host backend, in C.
 *
 * A module image is the bytes of a shared object that exports one table:
 *
 *     #include "rejoin_kernel.h"
 *     static int32_t twice(const rejoin_host_launch *launch, const void *const *params) {
 *         float *x = *(float *const *)params[0];
 *         uint32_t n = *(const uint32_t *)params[1];
 *         for (uint32_t i = 0; i < n; i++) x[i] *= 2;
 *         return 0;
 *     }
 *     static const uint32_t twice_params[] = {sizeof(float *), sizeof(uint32_t)};
 *     static const rejoin_host_kernel kernels[] = {{"twice", twice_params, 2, 0, twice}};
 *     REJOIN_KERNEL_TABLE(kernels);
 *
 *     cc -shared -fPIC -o kernels.so kernels.c
 *
 * A kernel runs one whole launch on the stream's worker thread. params[i] points to the i-th parameter,
 * aligned to 16 bytes. A result other than 0 is a device fault.
 */
#ifndef REJOIN_KERNEL_H
#define REJOIN_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REJOIN_KERNEL_MAGIC UINT64_C(0x314c4e52454b4a52) /* "RJKERNL1" */
#define REJOIN_KERNEL_ABI 1

typedef struct rejoin_host_launch {
    uint32_t grid[3];      /* blocks in x, y, z */
    uint32_t block[3];     /* threads a block in x, y, z */
    uint32_t shared_bytes; /* dynamic shared memory */
    uint32_t reserved;     /* 0 */
} rejoin_host_launch;

typedef int32_t (*rejoin_host_kernel_fn)(const rejoin_host_launch *launch, const void *const *params);

typedef struct rejoin_host_kernel {
    const char *name;            /* UTF-8 */
    const uint32_t *param_bytes; /* size of each parameter */
    uint32_t param_count;        /* at most 64 */
    uint32_t reserved;           /* 0 */
    rejoin_host_kernel_fn run;
} rejoin_host_kernel;

typedef struct rejoin_kernel_table_header {
    uint64_t magic; /* REJOIN_KERNEL_MAGIC */
    uint32_t abi;   /* REJOIN_KERNEL_ABI */
    uint32_t count; /* kernels */
    const rejoin_host_kernel *kernels;
} rejoin_kernel_table_header;

/* Exports an array of kernels. Once in a shared object. */
#ifdef __cplusplus
#define REJOIN_KERNEL_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define REJOIN_KERNEL_EXPORT __attribute__((visibility("default")))
#endif
#define REJOIN_KERNEL_TABLE(array)                                                                  \
    REJOIN_KERNEL_EXPORT const rejoin_kernel_table_header rejoin_kernel_table;                      \
    const rejoin_kernel_table_header rejoin_kernel_table = {                                        \
        REJOIN_KERNEL_MAGIC, REJOIN_KERNEL_ABI, (uint32_t)(sizeof(array) / sizeof((array)[0])), (array)}

#ifdef __cplusplus
}
#endif

#endif
