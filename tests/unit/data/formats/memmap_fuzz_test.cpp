// Golden files with random bytes changed, cut or repeated: opening and reading them gives an Error or tokens, never a crash
// or a read outside the files (the address sanitizer watches in its build). Fixed seeds, so every run tries the same.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/log.hpp"
#include "core/data/formats/memmap.hpp"
#include "core/data/formats/open_memmap.hpp"
#include "core/data/sampling/sampling.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

void mutate(std::string& bytes, std::mt19937& random) {
  auto below = [&](size_t n) { return size_t(random()) % n; };
  if (bytes.empty()) return;
  switch (below(5)) {
    case 0:
      bytes[below(bytes.size())] = char(random());
      break;
    case 1:
      bytes[below(bytes.size())] ^= char(1 << below(8));
      break;
    case 2:
      bytes.resize(below(bytes.size() + 1));
      break;
    case 3:
      bytes.insert(below(bytes.size()), bytes.substr(below(bytes.size()), below(16)));
      break;
    default: {  // numbers at the edge of what a field holds
      const uint64_t edges[] = {0,          1,         INT32_MAX, uint64_t(INT32_MAX) + 1,
                                UINT32_MAX, INT64_MAX, UINT64_MAX};
      uint64_t value = edges[below(std::size(edges))];
      size_t at = below(bytes.size()),
             size = std::min(below(2) ? size_t(8) : size_t(4), bytes.size() - at);
      std::memcpy(bytes.data() + at, &value, size);
    }
  }
}

// True when it loaded.
bool open_and_read(const std::filesystem::path& path) {
  try {
    IndexedPointer dataset = open_memmap(path);
    std::vector<Span> spans;
    for (int64_t i = 0; i < dataset->num_documents(); ++i) {
      int64_t size = dataset->document_size(i);
      read_document(*dataset, i, 0, &spans);
      read_document(*dataset, i, size / 2, &spans);
      auto pair = std::dynamic_pointer_cast<const MemmapDataset>(dataset);
      if (pair && pair->has_preference_spans()) pair->chosen_span(i), pair->rejected_span(i);
    }
    auto sampled = make_sampled(dataset, {3, 4, 1, Shuffle::kEpoch});
    for (int64_t i = 0; i < 3; ++i) read_sample(*sampled, i, 4);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(MemmapFuzz, ThrowsOrLoadsButNeverCrashes) {
  log::configure({.level = log::Level::kError});  // thousands of notes otherwise
  TemporaryDirectory folder;
  std::mt19937 random(20240607);
  std::string version_3 = index_bytes({.version = 3,
                                       .sizes = {2, 1},
                                       .offsets = {0, 4},
                                       .flags = {0, 1},
                                       .after_offsets = {0, 0, 1, 2, 3, 4, 5, 6}});
  std::vector<std::pair<std::string, std::string>> seeds{{version_3, "abcdef"}};
  for (const char* name :
       {"memmap-v1/plain", "memmap-v1/wide", "memmap-v2/plain", "memmap-v2/spans"}) {
    seeds.emplace_back(read_file(fixture(std::string(name) + ".idx")),
                       read_file(fixture(std::string(name) + ".bin")));
  }
  int loaded = 0, refused = 0, loaded_file = 0, refused_file = 0;
  for (int round = 0; round < 1000; ++round) {
    auto [index, data] = seeds[size_t(round) % seeds.size()];
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes)
      mutate(random() % 8 ? index : data, random);
    std::ofstream(folder.path() / "x.idx", std::ios::binary) << index;
    std::ofstream(folder.path() / "x.bin", std::ios::binary) << data;
    ++(open_and_read(folder.path() / "x") ? loaded : refused);
  }
  const std::string files[] = {read_file(fixture("memmap-e2/plain.fast_llm_dataset")),
                               read_file(fixture("memmap-e2/spans.fast_llm_dataset"))};
  for (int round = 0; round < 1000; ++round) {
    std::string file = files[round % 3 > 0];
    for (uint32_t changes = 1 + random() % 2; changes > 0; --changes) mutate(file, random);
    std::ofstream(folder.path() / "y.fast_llm_dataset", std::ios::binary) << file;
    ++(open_and_read(folder.path() / "y.fast_llm_dataset") ? loaded_file : refused_file);
  }
  log::configure({});
  // Both ways were tried.
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 100);
  EXPECT_GT(loaded_file, 20);
  EXPECT_GT(refused_file, 250);
}

// Each value of the configuration at the end of a file by one of each kind: also what is valid JSON may lie.
TEST(MemmapFuzz, TakesNoKindOfValueForAnother) {
  using nlohmann::ordered_json;
  TemporaryDirectory folder;
  const std::string file = read_file(fixture("memmap-e2/spans.fast_llm_dataset"));
  uint64_t end = 0;  // where the configuration begins
  for (size_t i = 25; i < 33; ++i) end = end << 8 | uint8_t(file[i]);
  auto configuration = ordered_json::parse(file.substr(end + 4));
  configuration["audio"] = {{"type", "none"}};
  const ordered_json kinds[] = {nullptr,
                                true,
                                -1,
                                1.5,
                                UINT64_MAX,
                                "none",
                                ordered_json::array({1, "none"}),
                                ordered_json::object(),
                                {{"type", 7}},
                                {{"type", nullptr}}};
  int tried = 0;
  const ordered_json leaves = configuration.flatten();
  for (const auto& [pointer, value] : leaves.items()) {
    for (ordered_json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      for (const ordered_json& kind : kinds) {
        ordered_json changed = configuration;
        changed[at] = kind;
        const std::string text = changed.dump();
        std::string bytes = file.substr(0, end);
        for (int shift : {24, 16, 8, 0}) bytes += char(text.size() >> shift);
        const auto path = folder.path() / "x.fast_llm_dataset";
        std::ofstream(path, std::ios::binary) << bytes << text;
        EXPECT_NO_THROW(open_and_read(path)) << text;  // an Error is what it takes for an answer
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 200);
}

}  // namespace
}  // namespace fastllm::data
