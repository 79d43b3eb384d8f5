// Makes results number 0, 1, 2, ... on background threads and hands them out in that order, a
// bounded number ahead. An exception travels to the next() whose turn it is, and ends the workers;
// later calls throw it again. The destructor waits only for results being made. next() belongs to
// one thread.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace fastllm::data {

template <class Result>
class OrderedWorkers {
 public:
  // make(number) runs on any of the threads, several at a time. threads 0: it runs in next().
  // ahead: results made or being made that next() has not given out yet.
  OrderedWorkers(int64_t count, int threads, int64_t ahead, std::function<Result(int64_t)> make)
      : make_(std::move(make)), count_(count), ahead_(ahead) {
    FASTLLM_ASSERT(threads >= 0 && ahead >= 1);
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {  // no more to be had: end those that run
      const size_t running = threads_.size();
      stop();
      throw Error(Status::kUnavailable,
                  fmt::format("expected {} threads, the system gave {} ({}); ask for fewer workers",
                              threads, running, e.code().message()));
    }
  }
  ~OrderedWorkers() { stop(); }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  bool done() const { return handed_ == count_; }  // thread of next()

  Result next() {
    FASTLLM_ASSERT(!done());
    auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    if (threads_.empty() && !failed_) {
      slots_.emplace_back();
      slots_.front() = made(handed_);
    } else {
      ready_.wait(lock, [&] { return failed_ || (!slots_.empty() && slots_.front().ready()); });
    }
    waited_ += std::chrono::steady_clock::now() - start;
    if (failed_) std::rethrow_exception(failed_);
    if (slots_.front().error) {
      failed_ = slots_.front().error;
      room_.notify_all();
      std::rethrow_exception(failed_);
    }
    Result result = std::move(*slots_.front().result);
    slots_.pop_front();
    ++handed_;
    room_.notify_one();
    return result;
  }

  // Time spent in next().
  double waited_ms() const {
    std::lock_guard lock(mutex_);
    return std::chrono::duration<double, std::milli>(waited_).count();
  }

 private:
  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
    bool ready() const { return result || error; }
  };

  Slot made(int64_t number) const {
    Slot slot;
    try {
      slot.result.emplace(make_(number));
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, [&] {
        return stopping_ || failed_ || (taken_ < count_ && taken_ < handed_ + ahead_);
      });
      if (stopping_ || failed_) return;
      int64_t number = taken_++;
      slots_.emplace_back();
      lock.unlock();
      Slot slot = made(number);
      lock.lock();
      slots_[size_t(number - handed_)] = std::move(slot);
      ready_.notify_one();
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const std::function<Result(int64_t)> make_;
  const int64_t count_, ahead_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;              // guards what follows
  std::condition_variable room_, ready_;  // for workers; for next()
  std::deque<Slot> slots_;                // numbers [handed_, taken_)
  int64_t taken_ = 0, handed_ = 0;
  bool stopping_ = false;
  std::exception_ptr failed_;
  std::chrono::steady_clock::duration waited_{};
};

}  // namespace fastllm::data
