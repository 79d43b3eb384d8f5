#include "core/distributed/rendezvous.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/distributed/sockets.hpp"

namespace fastllm::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int take_port(int port) {
  const int socket = listen_on(port);
  if (socket >= 0) return socket;
  const int reason = errno;
  if (reason == EADDRINUSE) {
    const std::string holder = port_holder(port);
    throw Error(
        Status::kUnavailable,
        fmt::format("expected port {} to be free for the ranks to meet at, found it taken{}; "
                    "set MASTER_PORT to another one on all ranks, or start with --nproc, "
                    "which finds one",
                    port, holder.empty() ? "" : " by " + holder));
  }
  throw Error(
      Status::kUnavailable,
      fmt::format("cannot listen on port {}: {}; set MASTER_PORT to another one on all ranks", port,
                  errno_text(reason)));
}

}  // namespace

void heed_signal(const std::string& waiting_for) {
  const int number = stop_signal().load(std::memory_order_relaxed);
  if (number == 0) return;
  throw Error(Status::kCancelled, fmt::format("Interrupt signal {} received while waiting for {}: "
                                              "nothing was begun, nothing is saved",
                                              signal_name(number), waiting_for));
}

MeetingPlace find_meeting_place(const LaunchEnvironment& launch, int rank, milliseconds timeout) {
  if (launch.master_host.empty() || launch.master_port == 0) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected the variables MASTER_ADDR and MASTER_PORT to say where {} ranks "
                    "meet, found {}; start with --nproc, torchrun or srun, which set them",
                    launch.world_size.value_or(1),
                    launch.master_host.empty() && launch.master_port == 0 ? "neither"
                    : launch.master_host.empty()                          ? "no MASTER_ADDR"
                                                                          : "no MASTER_PORT"));
  }
  MeetingPlace place;
  StoreAddress& address = place.address;
  address.host = launch.master_host;
  address.port = launch.master_port;
  address.prefix = "fastllm/" + launch.prefix;
  address.timeout = timeout;
  place.second_address = address;
  if (rank == 0 && !launch.launcher_serves) {
    address.listening =
        launch.listening_socket ? *launch.listening_socket : take_port(address.port);
    if (!launch.listening_socket) address.host = place.second_address.host = "localhost";
  }
  return place;
}

void wait_for_listener(const StoreAddress& address, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::string why;
  for (milliseconds pause(10);; pause = std::min(pause * 2, milliseconds(500))) {
    const milliseconds most = std::min(timeout, milliseconds(2000));
    if (connect_to(address.host, address.port, most, why).get() >= 0) return;
    heed_signal(fmt::format("rank 0 at {}:{}", address.host, address.port));
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  throw Error(
      Status::kUnavailable,
      fmt::format("expected rank 0 at {}:{} within {:g} s, found nothing there ({}); see that "
                  "it is started, and that MASTER_ADDR and MASTER_PORT are right",
                  address.host, address.port, double(timeout.count()) / 1000, why));
}

}  // namespace fastllm::distributed
