/* A network of 64 inputs, 32 hidden units (ReLU) and 10 outputs. All parameters lie in one buffer. */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include "dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HIDDEN = 32,
    /* Where each part of the parameters begins, in elements. */
    W1 = 0,
    B1 = W1 + PIXELS * HIDDEN,
    W2 = B1 + HIDDEN,
    B2 = W2 + HIDDEN * CLASSES,
    PARAMETERS = B2 + CLASSES
};

void model_initial(uint64_t seed, float parameters[PARAMETERS]);

/* How many samples the network classifies as labelled. */
uint32_t model_count_correct(const float parameters[PARAMETERS], const samples *of);

#ifdef __cplusplus
}
#endif

#endif
