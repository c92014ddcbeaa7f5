/* Kernels of the example: a shared object with one table. */
#include <rejoin_kernel.h>

/* total[i] += gradient[i] */
static int32_t accumulate(const rejoin_host_launch *launch, const void *const *params) {
    (void)launch;
    int32_t *total = *(int32_t *const *)params[0];
    const int32_t *gradient = *(const int32_t *const *)params[1];
    uint32_t n = *(const uint32_t *)params[2];
    for (uint32_t i = 0; i < n; i++) total[i] += gradient[i];
    return 0;
}

static const uint32_t accumulate_params[] = {sizeof(int32_t *), sizeof(int32_t *), sizeof(uint32_t)};
static const rejoin_host_kernel kernels[] = {{"accumulate", accumulate_params, 3, 0, accumulate}};
REJOIN_KERNEL_TABLE(kernels);
