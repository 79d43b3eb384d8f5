// The sentence with which a call is refused.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "core/base/error.hpp"

namespace fastllm::test {

// "(no error)" where it is not refused. status: of the Error, where that matters.
template <class Call>
std::string message_of(Call&& call, std::optional<Status> status = std::nullopt) {
  try {
    call();
  } catch (const Error& error) {
    if (status) {
      EXPECT_EQ(error.status(), *status) << error.what();
    }
    return error.what();
  }
  return "(no error)";
}

}  // namespace fastllm::test
