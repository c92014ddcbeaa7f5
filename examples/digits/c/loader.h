/*
 * Which samples a step trains on, as a function of a position that is small enough to be a step's blob; and the
 * numbers that everything random comes from.
 */
#ifndef DIGITS_LOADER_H
#define DIGITS_LOADER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BATCH = 256 };

/* Where the loader stands. This is what a rank hands to rejoin_step_end() and gets back from rejoin_resume(). */
typedef struct loader {
    uint64_t seed;
    uint64_t pass;  /* passes over the training set that were begun */
    uint64_t taken; /* samples of this pass that are taken */
} loader;

/* The next batch out of `count` samples; moves the loader behind it. */
void loader_next(loader *self, uint32_t count, uint32_t batch[BATCH]);

/* SplitMix64 (Steele, Lea, Flood 2014): one number is the whole state. */
uint64_t random_start(uint64_t seed, uint64_t stream);
uint64_t random_bits(uint64_t *state);
float random_symmetric(uint64_t *state); /* in -1..1 */

#ifdef __cplusplus
}
#endif

#endif
