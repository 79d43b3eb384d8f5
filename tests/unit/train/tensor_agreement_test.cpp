// Tensor ranks, as threads over a network in memory, that compare what they must have alike.
#include "core/train/tensor_agreement.hpp"

#include <gmock/gmock.h>

#include "core/distributed/exchange.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/gpt_description.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What two ranks log when `change` has done its work on rank 1, before which all weights are equal.
std::vector<std::string> mismatches(
    const std::function<void(shard::Store&, const std::string&, float*)>& change) {
  const model::Description description = test::gpt_description(test::small_gpt_shape(1, 12));
  const shard::Layout layout(description, {.tensor = 2}, {});
  distributed::testing::MemoryNetwork network;
  const test::CapturedLog log;
  distributed::testing::run_ranks(2, [&](int rank) {
    const auto tensor = distributed::make_exchange({"tensor", "", rank, {0, 1}}, network.of(rank));
    shard::Store store(layout, rank, {}, {.tensor = tensor.get()});
    const int64_t elements = store.flat("weights")->shape[0];
    auto* values = static_cast<float*>(store.flat("weights")->data);
    std::fill_n(values, elements, 1.0f);
    for (const shard::Stage& stage : layout.stages())
      for (size_t g = 0; g < stage.groups.size(); ++g)
        for (const shard::Piece& piece : stage.groups[g].pieces)
          if (rank == 1)
            change(store, description.parameters[size_t(piece.parameter)].name,
                   values + layout.shard_begin(rank, "weights", stage.index, int(g)) + piece.begin);
    check_tensor_ranks(store, "weights", {.tensor = tensor.get()}, "after iteration 3");
  });
  return log.lines("MISMATCH");
}

TEST(TensorAgreement, OneBitOfWhatIsWholeIsFound) {
  EXPECT_THAT(mismatches([](auto&, const std::string& name, float* first) {
                if (name == "layers.1.norm_1.weight") first[11] = std::nextafter(1.0f, 2.0f);
              }),
              ElementsAre(HasSubstr("MISMATCH weights of layers.1.norm_1.weight: tensor rank 1 has "
                                    "other bits than tensor rank 0 after iteration 3")));
}

TEST(TensorAgreement, PartsOfWeightsMayDiffer) {
  EXPECT_THAT(mismatches([](auto&, const std::string& name, float* first) {
                if (name == "layers.1.mlp.layer_1.weight") *first = 5;
              }),
              IsEmpty());
}

}  // namespace
}  // namespace fastllm::train
