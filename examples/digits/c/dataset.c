#include "dataset.h"

#include <stdio.h>

int dataset_load(const char *path, dataset *out) {
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    out->train.count = 0;
    out->test.count = 0;
    unsigned line = 0, value = 0;
    int result = 1;
    while (fscanf(file, "%u", &value) == 1) {
        samples *to = line % 6 == 5 ? &out->test : &out->train;
        if (to->count == MOST_SAMPLES) break;
        for (int pixel = 0; pixel < PIXELS; pixel++) {
            if (value > 16) goto damaged;
            to->images[to->count * PIXELS + (uint32_t)pixel] = (float)value / 16.0f;
            if (fscanf(file, ",%u", &value) != 1) goto damaged;
        }
        if (value >= CLASSES) goto damaged;
        to->labels[to->count++] = value;
        line++;
    }
    if (feof(file) && line > 0) {
        result = 0;
        goto close;
    }
damaged:
    fprintf(stderr, "%s: line %u is not %d pixels of 0 to 16 and a label\n", path, line + 1, PIXELS);
close:
    fclose(file);
    return result;
}
