// boost::interprocess::message_queue: send of N bytes, the parent receives. boost BYTES PRODUCERS
#include <boost/interprocess/ipc/message_queue.hpp>
#include <string>
#include <vector>

#include "race.hpp"

int main(int, char **argv) {
  namespace ipc = boost::interprocess;
  size_t bytes = std::atoi(argv[1]);
  std::string name = "rivals-" + std::to_string(getpid());
  ipc::message_queue queue(ipc::create_only, name.c_str(), 16384, 256);
  std::vector<char> payload(bytes, 7), sink(256);
  int rc = race(
      std::atoi(argv[2]), 200000, [&] { return [&] { queue.send(payload.data(), bytes, 0); }; },
      [&](auto go, auto running) {
        go();
        ipc::message_queue::size_type got;
        unsigned priority;
        while (running())
          if (!queue.try_receive(sink.data(), sink.size(), got, priority)) sched_yield();
      });
  ipc::message_queue::remove(name.c_str());
  return rc;
}
