/* SHA-256 (FIPS 180-4) of one run of bytes, in hex. */
#ifndef DIGITS_SHA256_H
#define DIGITS_SHA256_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void sha256_hex(const void *data, size_t bytes, char out[65]);

#ifdef __cplusplus
}
#endif

#endif
