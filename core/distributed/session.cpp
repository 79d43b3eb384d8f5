#include "core/distributed/session.hpp"

#include <fmt/format.h>

#include <future>
#include <thread>

#include "core/base/version.hpp"
#include "core/distributed/backend.hpp"
#include "core/distributed/coordinator.hpp"
#include "core/distributed/exchange.hpp"
#include "core/distributed/lifelines.hpp"
#include "core/distributed/rendezvous.hpp"
#include "core/distributed/sockets.hpp"

namespace fastllm::distributed {

using std::chrono::milliseconds;

struct Session::Connection {
  std::string host;
  milliseconds timeout;
  Backend* backend = nullptr;
  bool serves = false;
  std::unique_ptr<Store> store;
  std::unique_ptr<FailureWatch> watch;
  std::unique_ptr<Lifelines> lifelines;  // goes before the watch, which it tells
  std::unique_ptr<Coordinator> coordinator;
  bool finished = false;
};

namespace {

// A client waits without end for the answer of something that listens there and is no store.
std::unique_ptr<Store> open_store(Backend& backend, const StoreAddress& address) {
  if (address.listening) return backend.open_store(address);
  std::promise<std::unique_ptr<Store>> promise;
  auto result = promise.get_future();
  std::thread([&backend, address, p = std::move(promise)]() mutable {
    try {
      p.set_value(backend.open_store(address));
    } catch (...) {
      p.set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(address.timeout) == std::future_status::timeout)
    throw StoreLost("what listens there does not answer");
  return result.get();
}

// Where the ranks are when they have come to the store.
struct Meeting {
  Backend* backend = nullptr;
  StoreAddress address, second_address;
  std::unique_ptr<Store> store;
};

// What listens at the address is no store of a run, or no longer.
[[noreturn]] void no_store(const StoreAddress& address, const StoreLost& e) {
  throw Error(
      Status::kUnavailable,
      fmt::format("expected the store of the run at {}:{}, found none that answers ({}); see "
                  "what rank 0 says, and that no other program has that port",
                  address.host, address.port, e.what()));
}

Meeting come_to_store(const LaunchEnvironment& launch, int rank, milliseconds timeout) {
  Meeting meeting;
  const MeetingPlace place = find_meeting_place(launch, rank, timeout);
  meeting.backend = &load_backend();
  meeting.address = place.address;
  meeting.second_address = place.second_address;
  if (!meeting.address.listening) wait_for_listener(meeting.address, timeout);
  // Something listens there: if it is the store, it answers soon.
  meeting.address.timeout = meeting.second_address.timeout = std::min(timeout, milliseconds(10000));
  try {
    meeting.store = open_store(*meeting.backend, meeting.address);
  } catch (const StoreLost& e) {
    no_store(meeting.address, e);
  }
  return meeting;
}

}  // namespace

Session::Session(const World& world, int rank) : world_(world), rank_(rank) {}

std::unique_ptr<Session> Session::join(const LaunchEnvironment& launch, const World& world,
                                       int rank, const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(world, rank));
  if (world.size() > 1) {
    Meeting meeting = come_to_store(launch, rank, options.timeout);
    auto connection = std::make_unique<Connection>();
    Connection& c = *connection;
    c.backend = meeting.backend;
    c.host = meeting.second_address.host;
    c.timeout = options.timeout;
    c.serves = meeting.address.listening.has_value();
    c.store = std::move(meeting.store);
    try {
      if (rank == 0) c.lifelines = Lifelines::of_first(*c.store, world.size());
      const std::vector<std::string> names = introduce(
          *c.store, {rank, world.size(), version_text(), interface_problem()}, options.timeout);
      if (rank != 0) c.lifelines = Lifelines::of_other(*c.store, rank, c.host);
      WatchOptions watch = options.watch;
      watch.store_of_launcher = launch.launcher_serves;
      c.watch = std::make_unique<FailureWatch>(open_store(*c.backend, meeting.second_address), rank,
                                               names, watch);
    } catch (const StoreLost& e) {
      no_store(meeting.address, e);
    }
    c.lifelines->watch([w = c.watch.get()](int ended) { w->lost(ended); });
    c.coordinator = std::make_unique<Coordinator>(*c.store, rank, world.size(),
                                                  [w = c.watch.get()] { w->check(); });
    session->connection_ = std::move(connection);
  }
  try {
    session->connect_groups();
  } catch (const Error& e) {
    session->fail(e.what(), e.status());
    throw;
  }
  return session;
}

void Session::connect_groups() {
  for (GroupKind kind : kAllGroups) {
    const auto served = served_by(world_, kind);
    Communicator*& place = groups_[size_t(kind)];
    if (served && *served != kind) {
      place = groups_[size_t(*served)];  // ancestors come first in the list
      continue;
    }
    auto& own = own_[size_t(kind)];
    own = connect(group_of(world_, kind, rank_));
    place = own.get();
  }
}

Session::~Session() {
  if (connection_ && !connection_->finished)
    connection_->watch->fail("it ended before the run was over; see what its log says");
  further_.clear();
  for (auto& group : own_) group.reset();
}

Communicator& Session::group(GroupKind kind) { return *groups_[size_t(kind)]; }

Communicator& Session::add_group(const Group& group) {
  return *further_.emplace_back(connect(group));
}

std::unique_ptr<Communicator> Session::connect(const Group& group) {
  if (group.size() == 1) return make_single(group);
  FASTLLM_ASSERT(connection_);
  Connection& c = *connection_;
  FailureWatch* const watch = c.watch.get();
  watch->check();
  std::unique_ptr<Messages> messages;
  try {
    messages = c.backend->open_messages(*c.store, group, c.host, c.timeout);
  } catch (const std::exception& e) {
    watch->check();
    throw CommunicationError(
        fmt::format("cannot connect {} of group {}: {}; see what their logs say, and that no "
                    "firewall is between them",
                    ranks_text(group.members), group.key(), e.what()));
  }
  ExchangeHooks hooks;
  hooks.begin = [watch](const Group& g, Operation operation, int64_t number) {
    watch->begin(g, operation, number);
  };
  hooks.failed = [watch](const Group& g, Operation operation, int64_t number,
                         const std::string& reason) {
    watch->explain(g, operation, number, reason);
  };
  return make_exchange(group, std::move(messages), std::move(hooks));
}

std::vector<const Communicator*> Session::communicators() const {
  std::vector<const Communicator*> result;
  for (const auto& group : own_) {
    if (group && group->size() > 1) result.push_back(group.get());
  }
  for (const auto& group : further_) result.push_back(group.get());
  return result;
}

void Session::meet(const std::string& place, milliseconds timeout) {
  together([&](Coordinator& all) {
    all.meet(place, timeout.count() > 0 ? timeout : connection_->timeout);
  });
}

void Session::agree(const std::string& what, const std::string& text) {
  together([&](Coordinator& all) { all.agree(what, text, connection_->timeout); });
}

void Session::together(const std::function<void(Coordinator&)>& body) {
  if (!connection_) return;
  try {
    body(*connection_->coordinator);
  } catch (const StoreLost& e) {
    connection_->watch->await(milliseconds(2000));
    throw CommunicationError(
        fmt::format("the store of the run is gone ({}); see what rank 0 says", e.what()));
  }
}

void Session::fail(const std::string& sentence, Status status) noexcept {
  if (!connection_ || connection_->finished) return;
  connection_->watch->fail(sentence, status);
  connection_->finished = true;
}

void Session::finish() {
  if (!connection_) return;
  Connection& c = *connection_;
  meet("the end of the run");
  c.watch->finish();
  c.finished = true;
  if (!c.serves) return;
  // The others read that they may go from a store that this process holds.
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_.size(); ++rank) keys.push_back(fmt::format("life/{}", rank));
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(3000);
  for (size_t next = 0; next < keys.size() && std::chrono::steady_clock::now() < deadline;) {
    if (c.store->get(keys[next]).value_or("") == "done") {
      ++next;
    } else {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
}

void share_problem(const LaunchEnvironment& launch, const std::string& problem,
                   milliseconds timeout) {
  const int rank = int(launch.rank.value_or(0)), size = int(launch.world_size.value_or(1));
  if (size == 1) return;
  try {
    const Meeting meeting = come_to_store(launch, rank, timeout);
    introduce(*meeting.store, {rank, size, version_text(), problem}, timeout);
  } catch (const ToldByAnother&) {
    throw;
  } catch (const std::exception&) {  // the problem is what this rank has to tell
  }
}

}  // namespace fastllm::distributed
