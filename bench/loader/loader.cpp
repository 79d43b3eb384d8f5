// How fast samples come: from the memory map of a prepared dataset through sampling, checks and labels
// to micro-batches, without a model that waits for them. Prints one JSON object.
//
//   bench_loader PATH [key=value ...]           measure; PATH as in `type: memmap`
//   bench_loader --make PATH TOKENS MEAN        write a pair of random documents of MEAN tokens first
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/data/formats/memmap_writer.hpp"
#include "core/data/formats/open_memmap.hpp"
#include "core/data/loader.hpp"
#include "core/data/sampling/sampling.hpp"

namespace {

using namespace fastllm;
using Clock = std::chrono::steady_clock;

constexpr int64_t kVocabulary = 32000;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int make(const std::string& path, int64_t tokens, int64_t mean) {
  std::mt19937_64 random(1);
  data::MemmapWriter writer(path, data::TokenType::kInt16);
  std::vector<int64_t> document;
  while (tokens > 0) {
    document.resize(size_t(std::min(tokens, 1 + int64_t(random() % uint64_t(2 * mean - 1)))));
    for (int64_t& token : document) token = int64_t(random() % kVocabulary);
    writer.add(document);
    tokens -= int64_t(document.size());
  }
  writer.finish();
  return 0;
}

int measure(const std::string& path, const std::map<std::string, std::string>& given) {
  auto number = [&](const char* key, int64_t fallback) {
    auto found = given.find(key);
    return found == given.end() ? fallback : std::stoll(found->second);
  };
  auto word = [&](const char* key, const char* fallback) {
    auto found = given.find(key);
    return found == given.end() ? std::string(fallback) : found->second;
  };
  const int64_t length = number("sequence_length", 512), rows = number("micro_batch_size", 4),
                batches = number("batches", 5000), threads = number("threads", 2);

  auto begin = Clock::now();
  auto documents = data::open_memmap(path);
  data::SamplingOptions sampling;
  sampling.num_samples = batches * rows;
  sampling.sequence_length = length;
  sampling.seed = 1;
  sampling.shuffle = data::parse_shuffle(word("shuffle", "epoch"));
  sampling.truncate_documents = number("truncate_documents", 1) != 0;
  auto dataset = data::make_sampled(documents, sampling);
  data::LoaderOptions options;
  options.micro_batch_size = rows;
  options.sequence_length = length;
  options.vocab_size = kVocabulary;
  options.cross_document_attention = number("cross_document_attention", 1) != 0;
  options.threads = int(threads);
  data::Loader loader(dataset, options);
  loader.next();  // the order of the documents is made here
  const double setup = seconds_since(begin);

  begin = Clock::now();
  int64_t labels = 0;
  for (int64_t i = 1; i < batches; ++i) labels += loader.next()->valid_labels;
  const double took = seconds_since(begin);
  const auto tokens = double((batches - 1) * rows * length);
  std::printf(
      "{\"documents\": %lld, \"sequence_length\": %lld, \"micro_batch_size\": %lld, \"threads\": "
      "%lld, \"batches\": %lld, \"labels\": %lld, \"setup_s\": %.3f, \"seconds\": %.3f, "
      "\"tokens_per_s\": %.0f}\n",
      static_cast<long long>(documents->num_documents()), static_cast<long long>(length),
      static_cast<long long>(rows), static_cast<long long>(threads),
      static_cast<long long>(batches - 1), static_cast<long long>(labels), setup, took,
      tokens / took);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 5 && std::string_view(argv[1]) == "--make")
      return make(argv[2], std::stoll(argv[3]), std::stoll(argv[4]));
    if (argc < 2) {
      std::fputs("bench_loader PATH [key=value ...] | --make PATH TOKENS MEAN\n", stderr);
      return 2;
    }
    std::map<std::string, std::string> given;
    for (int i = 2; i < argc; ++i) {
      const char* equals = std::strchr(argv[i], '=');
      if (equals) given[std::string(argv[i], size_t(equals - argv[i]))] = equals + 1;
    }
    return measure(argv[1], given);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
