/* The handwritten digits: images of 8 x 8 pixels with values 0 to 1, and a label each. */
#ifndef DIGITS_DATASET_H
#define DIGITS_DATASET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PIXELS = 64, CLASSES = 10, MOST_SAMPLES = 1800 };

typedef struct samples {
    uint32_t count;
    float images[MOST_SAMPLES * PIXELS];
    uint32_t labels[MOST_SAMPLES];
} samples;

typedef struct dataset {
    samples train;
    samples test; /* every sixth line */
} dataset;

/* 0 when all of it was read; else it has said what is wrong. */
int dataset_load(const char *path, dataset *out);

#ifdef __cplusplus
}
#endif

#endif
