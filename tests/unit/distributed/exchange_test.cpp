// Collectives against sums made by hand, for every size of group up to five and all types.
#include "core/distributed/exchange.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/base/half.hpp"
#include "tests/support/message_of.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::distributed {
namespace {

using ::testing::HasSubstr;
using testing::MemoryNetwork;
using testing::run_ranks;

Group group(int rank, int size) {
  Group g{"data", "x_0_0", rank, {}};
  for (int r = 0; r < size; ++r) g.members.push_back(r);
  return g;
}

// Runs with a communicator each; then every rank's count of bytes must be what the network carried.
void with_ranks(int size, const std::function<void(Communicator&)>& body) {
  MemoryNetwork network;
  run_ranks(size, [&](int rank) {
    auto communicator = make_exchange(group(rank, size), network.of(rank));
    body(*communicator);
    EXPECT_EQ(communicator->traffic().bytes(), network.bytes_sent(rank));
  });
}

// A small number of its own for each rank and element; sums of some are exact in every type.
int value(int rank, int64_t i) { return int((rank * 7 + i * 3) % 11); }
int expected(Reduce op, int size, int64_t i) {
  int sum = 0, largest = 0;
  for (int r = 0; r < size; ++r) {
    sum += value(r, i);
    largest = std::max(largest, value(r, i));
  }
  return op == Reduce::kMax ? largest : sum;
}

template <class T>
T stored(DLDataType type, double x) {
  if (same_dtype(type, kBfloat16)) return T(to_bfloat16(float(x)));
  if (same_dtype(type, kFloat16)) return T(to_float16(float(x)));
  return T(x);
}

template <class T>
void check_type(DLDataType type, int size) {
  const bool half = is_compute_dtype(type) && !is_float32(type);
  // Whole messages and cut ones; not a multiple of the ranks.
  for (int64_t n : {int64_t(1), int64_t(7), kWholeAllReduce / int64_t(sizeof(T)) + 11}) {
    with_ranks(size, [&](Communicator& c) {
      for (Reduce op : {Reduce::kSum, Reduce::kMax, Reduce::kMean}) {
        if (op == Reduce::kMean && !is_compute_dtype(type)) continue;
        const double divisor = op == Reduce::kMean ? size : 1;
        std::vector<T> all(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) all[size_t(i)] = stored<T>(type, value(c.rank(), i));
        c.all_reduce({all.data(), n, type}, op).wait();
        for (int64_t i = 0; i < n; ++i) {
          const float mean = float(expected(op, size, i)) / float(divisor);
          ASSERT_EQ(all[size_t(i)], half ? stored<T>(type, mean) : T(mean)) << i;
        }
        std::vector<T> parts(size_t(n * size)), own(static_cast<size_t>(n));
        for (int64_t i = 0; i < n * size; ++i)
          parts[size_t(i)] = stored<T>(type, value(c.rank(), i));
        c.reduce_scatter({parts.data(), n * size, type}, {own.data(), n, type}, op).wait();
        for (int64_t i = 0; i < n; ++i) {
          const float mean = float(expected(op, size, c.rank() * n + i)) / float(divisor);
          ASSERT_EQ(own[size_t(i)], half ? stored<T>(type, mean) : T(mean)) << i;
        }
      }
      std::vector<T> part(static_cast<size_t>(n)), all(size_t(n * size));
      for (int64_t i = 0; i < n; ++i) part[size_t(i)] = stored<T>(type, value(c.rank(), i));
      c.all_gather({part.data(), n, type}, {all.data(), n * size, type}).wait();
      for (int r = 0; r < size; ++r) {
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(all[size_t(r * n + i)], stored<T>(type, value(r, i)));
      }
    });
  }
}

class Types : public ::testing::TestWithParam<int> {};
TEST_P(Types, Float32) { check_type<float>(kFloat32, GetParam()); }
TEST_P(Types, Bfloat16) { check_type<uint16_t>(kBfloat16, GetParam()); }
TEST_P(Types, Float16) { check_type<uint16_t>(kFloat16, GetParam()); }
TEST_P(Types, Int64) { check_type<int64_t>(kInt64, GetParam()); }
TEST_P(Types, Uint8) { check_type<uint8_t>(kUint8, GetParam()); }
INSTANTIATE_TEST_SUITE_P(Exchange, Types, ::testing::Values(2, 3, 5));

TEST(Exchange, SumsRunInTheOrderOfRanksOnEveryRank) {
  // 1 is lost next to 2^24, unless the large ones cancel first.
  const float terms[] = {16777216.0f, 1.0f, -16777216.0f};
  with_ranks(3, [&](Communicator& c) {
    for (int64_t n : {int64_t(1), int64_t(60000)}) {
      std::vector<float> x(size_t(n), terms[c.rank()]);
      c.all_reduce({x.data(), n}, Reduce::kSum).wait();
      for (float y : x) ASSERT_EQ(y, 0.0f);
    }
  });
}

TEST(Exchange, SixteenBitsAreSummedInFloat32) {
  // In bfloat16, 256 + 1 is 256; four of them would stay there.
  with_ranks(5, [&](Communicator& c) {
    std::vector<uint16_t> x(5, to_bfloat16(c.rank() == 0 ? 256.0f : 1.0f));
    float wide = 0;
    c.reduce_scatter({x.data(), 5, kBfloat16}, {&wide, 1, kFloat32}, Reduce::kSum).wait();
    EXPECT_EQ(wide, 260.0f);
    c.all_reduce({x.data(), 5, kBfloat16}, Reduce::kSum).wait();
    EXPECT_EQ(from_bfloat16(x[0]), 260.0f);
  });
}

TEST(Exchange, AMaximumKeepsWhatIsNoNumber) {
  with_ranks(3, [&](Communicator& c) {
    float x[2] = {c.rank() == 1 ? NAN : float(c.rank()), c.rank() == 2 ? -INFINITY : -1.0f};
    c.all_reduce({x, 2}, Reduce::kMax).wait();
    EXPECT_TRUE(std::isnan(x[0]));
    EXPECT_EQ(x[1], -1.0f);
  });
}

TEST(Exchange, InPlaceAndSeveralUnderWay) {
  const int size = 4;
  with_ranks(size, [&](Communicator& c) {
    std::vector<float> a(8, 0), b(8, 0);
    a[size_t(c.rank() * 2)] = a[size_t(c.rank() * 2 + 1)] = float(c.rank() + 1);
    for (size_t i = 0; i < 8; ++i) b[i] = float(i);
    Pending gather = c.all_gather({&a[size_t(c.rank() * 2)], 2, kFloat32}, {a.data(), 8});
    Pending reduce =
        c.reduce_scatter({b.data(), 8, kFloat32}, {&b[size_t(c.rank() * 2)], 2}, Reduce::kSum);
    reduce.wait();  // in another order than they began
    gather.wait();
    EXPECT_EQ(a, (std::vector<float>{1, 1, 2, 2, 3, 3, 4, 4}));
    EXPECT_EQ(b[size_t(c.rank() * 2)], float(c.rank() * 2 * size));
    EXPECT_EQ(b[size_t(c.rank() * 2 + 1)], float((c.rank() * 2 + 1) * size));
  });
}

TEST(Exchange, BroadcastAllToAllAndBarrier) {
  for (int size : {2, 3, 5}) {
    with_ranks(size, [&](Communicator& c) {
      int64_t x = c.rank() == 1 ? 42 : 0;
      c.broadcast({&x, 1, kInt64}, 1).wait();
      EXPECT_EQ(x, 42);
      c.barrier();
      // Rank r sends r + p elements to rank p, each r * 100 + p.
      std::vector<int64_t> in_counts, out_counts, in, out, wanted;
      for (int p = 0; p < size; ++p) {
        in_counts.push_back(c.rank() + p);
        out_counts.push_back(c.rank() + p);
        in.insert(in.end(), size_t(c.rank() + p), c.rank() * 100 + p);
        wanted.insert(wanted.end(), size_t(c.rank() + p), p * 100 + c.rank());
      }
      out.resize(wanted.size());
      c.all_to_all({in.data(), int64_t(in.size()), kInt64}, in_counts,
                   {out.data(), int64_t(out.size()), kInt64}, out_counts)
          .wait();
      EXPECT_EQ(out, wanted);
      std::vector<int64_t> equal(size_t(size), c.rank()), back(size_t(size), -1);
      c.all_to_all({equal.data(), size, kInt64}, {}, {back.data(), size, kInt64}, {}).wait();
      for (int p = 0; p < size; ++p) EXPECT_EQ(back[size_t(p)], p);
    });
  }
}

TEST(Exchange, MessagesBetweenTwoKeepTheirOrder) {
  with_ranks(3, [&](Communicator& c) {
    const int next = (c.rank() + 1) % 3, before = (c.rank() + 2) % 3;
    float out[3] = {float(c.rank() * 10), float(c.rank() * 10 + 1), float(c.rank() * 10 + 2)};
    float in[3] = {};
    std::vector<Pending> sends;
    for (float& x : out) sends.push_back(c.send({&x, 1, kFloat32}, next));
    for (float& x : in) c.receive({&x, 1}, before).wait();
    for (auto& send : sends) send.wait();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(in[i], float(before * 10 + i));
  });
}

TEST(Exchange, BytesAreWhatAPlanForetells) {
  const int size = 3;
  with_ranks(size, [&](Communicator& c) {
    int64_t total = 0;
    auto check = [&](Operation operation, int64_t count, int element, int root = 0) {
      total += bytes_sent(operation, count, element, size, c.rank(), root);
      EXPECT_EQ(c.traffic().bytes(), total) << operation_name(operation);
    };
    std::vector<float> x(30001), y(30001 * 3);
    c.all_reduce({x.data(), 10}, Reduce::kSum).wait();
    check(Operation::kAllReduce, 10, 4);
    c.all_reduce({x.data(), 30001}, Reduce::kSum).wait();
    check(Operation::kAllReduce, 30001, 4);
    c.all_gather({x.data(), 30001, kFloat32}, {y.data(), 30001 * 3}).wait();
    check(Operation::kAllGather, 30001, 4);
    c.reduce_scatter({y.data(), 30001 * 3, kFloat32}, {x.data(), 30001}, Reduce::kSum).wait();
    check(Operation::kReduceScatter, 30001, 4);
    c.broadcast({x.data(), 7}, 2).wait();
    check(Operation::kBroadcast, 7, 4, 2);
    c.barrier();
    check(Operation::kBarrier, 0, 1);
  });
}

TEST(Exchange, AFailedMessageNamesCallAndGroup) {
  struct Broken final : Messages {
    struct Lost final : Work {
      void wait() override { throw std::runtime_error("connection closed"); }
    };
    std::unique_ptr<Work> send(const void*, int64_t, int, uint32_t) override {
      return std::make_unique<Lost>();
    }
    std::unique_ptr<Work> receive(void*, int64_t, int, uint32_t) override {
      return std::make_unique<Lost>();
    }
  };
  std::string told;
  ExchangeHooks hooks;
  hooks.failed = [&](const Group& g, Operation operation, int64_t number, const std::string& why) {
    told = g.key() + " " + operation_name(operation) + " " + std::to_string(number) + " " + why;
  };
  auto c = make_exchange(group(0, 2), std::make_unique<Broken>(), hooks);
  float x = 0;
  try {
    c->all_reduce({&x, 1}, Reduce::kSum).wait();
    FAIL();
  } catch (const CommunicationError& e) {
    EXPECT_STREQ(e.what(), "all_reduce over group data_x_0_0 (ranks 0-1): connection closed");
  }
  EXPECT_EQ(told, "data_x_0_0 all_reduce 1 connection closed");
}

std::string refusal(const std::function<void(Communicator&)>& call) {
  MemoryNetwork network;
  auto c = make_exchange(group(0, 2), network.of(0));
  return test::message_of([&] { call(*c); }, Status::kInvalid);
}

TEST(Communicator, RefusesWhatDoesNotFit) {
  float x[8] = {};
  const DLDataType odd{kDLInt, 32, 1};
  using C = Communicator;
  EXPECT_EQ(
      refusal([&](C& c) {
        (void)c.all_reduce({x, 1, odd}, Reduce::kSum);
      }),
      "all_reduce over group data_x_0_0: expected float32, bfloat16, float16, int64 or uint8, "
      "found int32");
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.all_reduce({x, 1, kInt64}, Reduce::kMean);
              }),
              HasSubstr("expected a float type for a mean, found int64"));
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.all_gather({x, 2, kFloat32}, {x, 5});
              }),
              HasSubstr("all_gather over group data_x_0_0: expected 2 times 2 elements, found 5"));
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.reduce_scatter({x, 5, kFloat32}, {x, 2}, Reduce::kSum);
              }),
              HasSubstr("expected 2 times 2 elements, found 5"));
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.all_gather({x, 2, kFloat32}, {x, 4, kBfloat16});
              }),
              HasSubstr("expected one type, found float32 and bfloat16"));
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.broadcast({x, 1}, 2);
              }),
              HasSubstr("expected a rank of the 2 in the group, found 2"));
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.send({x, 1, kFloat32}, 0);
              }),
              HasSubstr("expected another rank of the 2 in the group, found 0"));
  const int64_t wrong[] = {1, 2};
  EXPECT_THAT(refusal([&](C& c) {
                (void)c.all_to_all({x, 4, kFloat32}, wrong, {x + 4, 4}, {});
              }),
              HasSubstr("expected 2 counts that add up to 4, found 2 that add up to 3"));
}

TEST(Communicator, AloneEverythingIsACopy) {
  auto c = make_single(group(0, 1));
  float x[2] = {1, 2}, y[2] = {};
  c->all_gather({x, 2, kFloat32}, {y, 2}).wait();
  EXPECT_EQ(y[1], 2);
  x[0] = 5;
  c->reduce_scatter({x, 2, kFloat32}, {y, 2}, Reduce::kMean).wait();
  EXPECT_EQ(y[0], 5);
  c->all_reduce({x, 2}, Reduce::kSum).wait();
  c->barrier();
  EXPECT_EQ(x[1], 2);
  EXPECT_EQ(c->traffic().bytes(), 0);
}

}  // namespace
}  // namespace fastllm::distributed
