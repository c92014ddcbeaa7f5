// A tracepoint with N bytes, as a sequence.
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER rivals
#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "./lttng_tp.h"
#if !defined(RIVALS_TP_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define RIVALS_TP_H
#include <lttng/tracepoint.h>
TRACEPOINT_EVENT(rivals, record, TP_ARGS(const char *, bytes, size_t, len),
                 TP_FIELDS(ctf_sequence(char, bytes, bytes, size_t, len)))
#endif
#include <lttng/tracepoint-event.h>
