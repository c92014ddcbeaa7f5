// As src/race.rs: N processes that append as fast as they can, started together.
#pragma once
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

struct Page {
  std::atomic<int> go, ready, finished;
  double nanos[8];
};

/// `producer()` gives an appender; `consume(go, running)` runs in the parent. Prints the mean nanoseconds.
template <class Producer, class Consume>
int race(int producers, long count, Producer producer, Consume consume) {
  auto *page = static_cast<Page *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int i = 0; i < producers; i++) {
    if (fork() != 0) continue;
    while (!page->go) sched_yield();
    auto append = producer();
    for (int k = 0; k < 20000; k++) append();
    page->ready++;
    while (page->ready < producers) append();
    auto start = std::chrono::steady_clock::now();
    for (long k = 0; k < count; k++) append();
    page->nanos[i] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / count;
    page->finished++;
    while (page->finished < producers) append();
    _exit(0);
  }
  consume([&] { page->go = 1; }, [&] { return page->finished < producers; });
  int status, bad = 0;
  while (wait(&status) > 0) bad |= status;
  double sum = 0;
  for (int i = 0; i < producers; i++) sum += page->nanos[i];
  std::printf("%.1f\n", sum / producers);
  return bad != 0;
}
