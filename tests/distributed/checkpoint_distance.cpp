// checkpoint_distance A B [N]: how far the parameters of two checkpoints of one model are apart, whatever
// ranks wrote them. One JSON object: state -> parameter -> [norm of the difference, norm of B's].
// With N parameters whose name has .mlp.layer_ are told apart in N equal chunks, as NAME[0] .. : those
// of experts. Reads both through the format plugin by name, so that the layouts do not matter.
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/host/job.hpp"
#include "apps/host/running_job.hpp"
#include "core/checkpoint/convert.hpp"
#include "core/checkpoint/tensor_view.hpp"
#include "core/plugin/stage_tables.hpp"

namespace {

using namespace fastllm;

std::vector<float> read(checkpoint::Reader& reader, const checkpoint::StoredTensor& stored) {
  const auto& [state, port] = stored;
  const auto count = size_t(
      std::accumulate(port.shape.begin(), port.shape.end(), int64_t(1), std::multiplies<>()));
  std::vector<char> bytes(count * (port.dtype.bits / 8));
  checkpoint::TensorView view(bytes.data(), port.dtype, port.shape);
  reader.read(state, port.name, nullptr, view.get());
  std::vector<float> values(count);
  checkpoint::convert_to_float32(bytes.data(), port.dtype, int64_t(count), values.data());
  return values;
}

nlohmann::json distances(checkpoint::Reader& first, checkpoint::Reader& second, size_t experts) {
  std::map<std::pair<std::string, std::string>, checkpoint::StoredTensor> others;
  for (checkpoint::StoredTensor& stored : second.list()) {
    const std::pair key(stored.state, stored.tensor.name);
    others.emplace(key, std::move(stored));
  }
  nlohmann::json result;
  for (const checkpoint::StoredTensor& stored : first.list()) {
    const auto other = others.find({stored.state, stored.tensor.name});
    FASTLLM_ASSERT(other != others.end() && other->second.tensor.shape == stored.tensor.shape);
    const std::vector<float> a = read(first, stored), b = read(second, other->second);
    const std::string& name = stored.tensor.name;
    const bool divided = experts > 0 && name.find(".mlp.layer_") != std::string::npos;
    const size_t chunks = divided ? experts : 1, size = a.size() / chunks;
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      double difference = 0, norm = 0;
      for (size_t i = chunk * size; i < (chunk + 1) * size; ++i) {
        difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
        norm += double(b[i]) * b[i];
      }
      const std::string part = divided ? name + "[" + std::to_string(chunk) + "]" : name;
      result[stored.state][part] = {std::sqrt(difference), std::sqrt(norm)};
    }
    others.erase(other);
  }
  FASTLLM_ASSERT(others.empty());
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    FASTLLM_ASSERT(argc == 3 || argc == 4);
    host::Options options;
    options.plugin = "gpt";
    host::Job job(options);
    const host::RunningJob running(job);
    checkpoint::Format& format = job.registry().format("distributed");
    const auto first = format.open(argv[1]), second = format.open(argv[2]);
    std::puts(distances(*first, *second, argc > 3 ? std::stoul(argv[3]) : 0).dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
