// LTTng-UST: one tracepoint of N bytes into per-CPU overwrite buffers; the script sets the session up.
#include <vector>

#include "lttng_tp.h"
#include "race.hpp"

int main(int, char **argv) {
  size_t bytes = std::atoi(argv[1]);
  std::vector<char> payload(bytes, 7);
  if (!tracepoint_enabled(rivals, record)) {
    std::fprintf(stderr, "the tracepoint is not enabled: no session daemon\n");
    return 1;
  }
  return race(
      std::atoi(argv[2]), 500000, [&] { return [&] { tracepoint(rivals, record, payload.data(), bytes); }; },
      [](auto go, auto running) {
        go();
        while (running()) usleep(1000);
      });
}
