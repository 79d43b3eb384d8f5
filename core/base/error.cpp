#include "core/base/error.hpp"

namespace fastllm {

const char* status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kCancelled:
      return "cancelled";
    case Status::kInvalid:
      return "invalid";
    case Status::kNotFound:
      return "not found";
    case Status::kOutOfMemory:
      return "out of memory";
    case Status::kUnsupported:
      return "unsupported";
    case Status::kInternal:
      return "internal error";
    case Status::kUnavailable:
      return "unavailable";
    case Status::kDataLoss:
      return "data loss";
  }
  return "unknown status";
}

void assertion_failed(const char* condition, const char* file, int line) {
  throw Error(Status::kInternal, std::string("this is a fault of fastllm: expected ") + condition +
                                     " at " + file + ":" + std::to_string(line) +
                                     "; please report it");
}

}  // namespace fastllm
