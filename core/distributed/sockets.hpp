// TCP sockets of a run, as far as it makes its own: listening, connecting, and who has a port.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/base/descriptor.hpp"

namespace fastllm::distributed {

// Listens on all interfaces, for both kinds of addresses where there are both; port 0: a free one.
// -1: errno says why not.
int listen_on(int port);
// Of a socket that listens; nullopt: it does not.
std::optional<int> port_of(int socket);

// Connected within that time, else no socket and `why`.
Descriptor connect_to(const std::string& host, int port, std::chrono::milliseconds most,
                      std::string& why);

// "process 17 (python3)": who listens on that port of this computer; empty: cannot be seen.
std::string port_holder(int port);

// What is wrong with an interface that GLOO_SOCKET_IFNAME names; empty: nothing.
std::string interface_problem();

}  // namespace fastllm::distributed
