// The ranks of one run, from meeting each other to parting: groups, comparisons, and the watch over
// failures. A run of one rank has a session too, with nothing behind it.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/distributed/communicator.hpp"
#include "core/distributed/environment.hpp"
#include "core/distributed/failure.hpp"
#include "core/distributed/introduction.hpp"
#include "core/distributed/world.hpp"

namespace fastllm::distributed {

class Coordinator;

struct SessionOptions {
  std::chrono::milliseconds timeout{60000};  // model.distributed.timeout
  WatchOptions watch;
};

class Session {
 public:
  // Returns when all ranks have come, and all groups of the mesh are connected.
  // A rank that cannot (its configuration is wrong, as found before) says so with share_problem().
  static std::unique_ptr<Session> join(const LaunchEnvironment& launch, const World& world,
                                       int rank, const SessionOptions& options);
  // Without finish(): tells the others that this rank ended early.
  ~Session();

  const World& world() const { return world_; }
  int rank() const { return rank_; }

  // Of this rank; a group of one rank copies.
  Communicator& group(GroupKind kind);
  // A further group, such as that of a tied weight; stays as long as the session. All its members
  // call, in the same order.
  Communicator& add_group(const Group& group);
  // Those that exist, each once: for counting bytes.
  std::vector<const Communicator*> communicators() const;

  // See Coordinator; timeout 0: that of the options.
  void meet(const std::string& place, std::chrono::milliseconds timeout = {});
  void agree(const std::string& what, const std::string& text);

  // This rank ends with that sentence: lets the others know why, and that they are to stop like it
  // (kCancelled). Does nothing when it is the consequence of another's failure.
  void fail(const std::string& sentence, Status status = Status::kUnavailable) noexcept;
  // The last meeting: nothing can fail any more.
  void finish();

 private:
  Session(const World& world, int rank);
  void connect_groups();
  std::unique_ptr<Communicator> connect(const Group& group);
  void together(const std::function<void(Coordinator&)>& body);  // nothing to do for one rank
  struct Connection;
  World world_;
  int rank_;
  std::unique_ptr<Connection> connection_;  // null: one rank
  // By kind; those that are served by another kind are null, and found through it.
  std::array<std::unique_ptr<Communicator>, std::size(kAllGroups)> own_;
  std::array<Communicator*, std::size(kAllGroups)> groups_{};
  std::vector<std::unique_ptr<Communicator>> further_;
};

// For a rank that found, before it met the others, why it cannot take part: meets those that come
// within that time to let them know. Throws ToldByAnother when another rank has the same problem and
// tells it; returns when this one is to tell.
void share_problem(const LaunchEnvironment& launch, const std::string& problem,
                   std::chrono::milliseconds timeout);

}  // namespace fastllm::distributed
