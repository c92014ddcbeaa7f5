#include "model.h"

#include "loader.h"

#include <math.h>
#include <string.h>

static void fill(uint64_t *state, float *values, int count, int inputs) {
    float limit = sqrtf(6.0f / (float)inputs);
    for (int i = 0; i < count; i++) values[i] = random_symmetric(state) * limit;
}

void model_initial(uint64_t seed, float parameters[PARAMETERS]) {
    uint64_t state = random_start(seed, 0);
    memset(parameters, 0, PARAMETERS * sizeof *parameters);
    fill(&state, parameters + W1, PIXELS * HIDDEN, PIXELS);
    fill(&state, parameters + W2, HIDDEN * CLASSES, HIDDEN);
}

static uint32_t classify(const float *parameters, const float *image) {
    float hidden[HIDDEN], outputs[CLASSES];
    memcpy(hidden, parameters + B1, sizeof hidden);
    for (int pixel = 0; pixel < PIXELS; pixel++) {
        for (int unit = 0; unit < HIDDEN; unit++) hidden[unit] += image[pixel] * parameters[W1 + pixel * HIDDEN + unit];
    }
    memcpy(outputs, parameters + B2, sizeof outputs);
    for (int unit = 0; unit < HIDDEN; unit++) {
        float value = hidden[unit] > 0.0f ? hidden[unit] : 0.0f;
        for (int class = 0; class < CLASSES; class++) outputs[class] += value * parameters[W2 + unit * CLASSES + class];
    }
    uint32_t best = 0;
    for (uint32_t class = 1; class < CLASSES; class++) {
        if (outputs[class] >= outputs[best]) best = class;
    }
    return best;
}

uint32_t model_count_correct(const float parameters[PARAMETERS], const samples *of) {
    uint32_t correct = 0;
    for (uint32_t i = 0; i < of->count; i++) correct += classify(parameters, of->images + i * PIXELS) == of->labels[i];
    return correct;
}
