#include "loader.h"

#include <string.h>

enum { MOST_SAMPLES = 1800 };

uint64_t random_start(uint64_t seed, uint64_t stream) {
    return seed ^ stream * UINT64_C(0xd1b54a32d192ed03);
}

uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

float random_symmetric(uint64_t *state) {
    int32_t bits = (int32_t)(random_bits(state) >> 40) - (1 << 23);
    return (float)bits / (float)(1 << 23);
}

static uint32_t below(uint64_t *state, uint32_t limit) {
    return (uint32_t)((random_bits(state) >> 32) * limit >> 32);
}

void loader_next(loader *self, uint32_t count, uint32_t batch[BATCH]) {
    if (self->taken + BATCH > count) {
        self->pass++;
        self->taken = 0;
    }
    uint32_t order[MOST_SAMPLES];
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    uint64_t state = random_start(self->seed, self->pass + 1);
    for (uint32_t last = count - 1; last > 0; last--) {
        uint32_t other = below(&state, last + 1);
        uint32_t kept = order[last];
        order[last] = order[other];
        order[other] = kept;
    }
    memcpy(batch, order + self->taken, BATCH * sizeof *batch);
    self->taken += BATCH;
}
