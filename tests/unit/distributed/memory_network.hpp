// Ranks as threads of one process: a store in memory, and messages through queues.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "core/distributed/exchange.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::distributed::testing {

class MemoryStore final : public Store {
 public:
  struct Contents {
    std::mutex mutex;
    std::map<std::string, std::string> values;
    std::map<std::string, int64_t> sums;
    bool lost = false;  // the process that holds it is gone
  };
  explicit MemoryStore(std::shared_ptr<Contents> contents) : contents_(std::move(contents)) {}

  void set(const std::string& key, const std::string& value) override {
    const auto lock = open();
    contents_->values[key] = value;
  }
  std::optional<std::string> get(const std::string& key) override {
    const auto lock = open();
    auto found = contents_->values.find(key);
    if (found == contents_->values.end()) return std::nullopt;
    return found->second;
  }
  bool has(std::span<const std::string> keys) override {
    const auto lock = open();
    for (const auto& key : keys) {
      if (!contents_->values.contains(key)) return false;
    }
    return true;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    const auto lock = open();
    return contents_->sums[key] += amount;
  }
  void remove(const std::string& key) override {
    const auto lock = open();
    contents_->values.erase(key);
    contents_->sums.erase(key);
  }

 private:
  std::unique_lock<std::mutex> open() {
    std::unique_lock lock(contents_->mutex);
    if (contents_->lost) throw StoreLost("connection closed");
    return lock;
  }
  std::shared_ptr<Contents> contents_;
};

// Messages are copied when sent; a receive blocks in wait().
class MemoryNetwork {
 public:
  std::unique_ptr<Messages> of(int rank) { return std::make_unique<End>(*this, rank); }
  int64_t bytes_sent(int rank) {
    const std::lock_guard lock(mutex_);
    return sent_[rank];
  }

 private:
  using Key = std::tuple<int, int, uint32_t>;  // from, to, tag

  struct Done final : Work {
    void wait() override {}
  };
  struct Arrival final : Work {
    Arrival(MemoryNetwork& n, Key k, void* d, int64_t b) : net(n), key(k), data(d), bytes(b) {}
    void wait() override {
      std::unique_lock lock(net.mutex_);
      auto& queue = net.queues_[key];
      if (!net.changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !queue.empty(); }))
        throw std::runtime_error("timed out");
      if (int64_t(queue.front().size()) != bytes) throw std::runtime_error("another size");
      if (bytes > 0) std::memcpy(data, queue.front().data(), size_t(bytes));
      queue.erase(queue.begin());
    }
    MemoryNetwork& net;
    Key key;
    void* data;
    int64_t bytes;
  };
  struct End final : Messages {
    End(MemoryNetwork& n, int r) : net(n), rank(r) {}
    std::unique_ptr<Work> send(const void* data, int64_t bytes, int to, uint32_t tag) override {
      const std::lock_guard lock(net.mutex_);
      const auto* begin = static_cast<const std::byte*>(data);
      net.queues_[{rank, to, tag}].emplace_back(begin, begin + bytes);
      net.sent_[rank] += bytes;
      net.changed_.notify_all();
      return std::make_unique<Done>();
    }
    std::unique_ptr<Work> receive(void* data, int64_t bytes, int from, uint32_t tag) override {
      return std::make_unique<Arrival>(net, Key{from, rank, tag}, data, bytes);
    }
    MemoryNetwork& net;
    int rank;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::vector<std::vector<std::byte>>> queues_;
  std::map<int, int64_t> sent_;
};

// Runs the body for each rank at once. An exception of one ends the test program: bodies catch what they expect.
inline void run_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (auto& thread : threads) thread.join();
}

}  // namespace fastllm::distributed::testing
