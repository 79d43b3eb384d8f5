// The plugin libfastllm_distributed.so as the host uses it: fixtures of all ages, slices, refusals,
// and what it writes.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/checkpoint/loader.hpp"
#include "core/checkpoint/tensor_view.hpp"
#include "core/plugin/stage_tables.hpp"
#include "tests/unit/checkpoint/support.hpp"

namespace fastllm::test {
namespace {

using checkpoint::TensorView;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
constexpr DLDataType kFloat32{kDLFloat, 32, 1};

std::vector<float> read_whole(checkpoint::Reader& reader, const std::string& state,
                              const model::Port& port) {
  std::vector<float> values(size_t(
      std::accumulate(port.shape.begin(), port.shape.end(), int64_t(1), std::multiplies<>())));
  TensorView view(values.data(), port.dtype, port.shape);
  reader.read(state, port.name, nullptr, view.get());
  return values;
}

std::string sha256_of(const std::vector<float>& values) {
  return sha256_hex({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

class Fixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(Fixtures, ListAndReadByNameGiveEveryParameterBitForBit) {
  const std::string name = GetParam();
  const auto expected = expected_of(name);
  EXPECT_EQ(distributed().detect(fixture(name)), 100);
  const auto reader = distributed().open(fixture(name));
  EXPECT_EQ(reader->metadata().get<int64_t>("metadata.completed_steps"), 3);
  size_t checked = 0, listed = 0;
  for (const auto& [state, port] : reader->list()) {
    ++listed;
    ASSERT_TRUE(expected["global_parameters"].contains(port.name)) << port.name;
    const auto& parameter = expected["global_parameters"][port.name];
    EXPECT_EQ(nlohmann::json(port.shape), parameter["shape"]) << port.name;
    const std::vector<float> values = read_whole(*reader, state, port);
    EXPECT_EQ(sha256_of(values), parameter["sha256"][state].get<std::string>())
        << state << " of " << port.name;
    const int ordinal = parameter["ordinal"];
    EXPECT_EQ(values.back(), fixture_value(state, ordinal, int64_t(values.size()) - 1));
    ++checked;
  }
  // Optimizer state of frozen parameters is not offered, whether the file has any (age 0) or not.
  size_t wanted = 0;
  for (const auto& [key, parameter] : expected["global_parameters"].items())
    wanted += parameter["frozen"].get<bool>() ? 1 : 3;
  const bool frozen_mlp = name.find("frozen") != std::string::npos;
  EXPECT_EQ(listed, frozen_mlp ? expected["global_parameters"].size() * 3 - 2 * 2 * 2 : wanted);
  EXPECT_EQ(checked, listed);
}

INSTANTIATE_TEST_SUITE_P(OfAges0And1, Fixtures,
                         ::testing::Values("E0-distributed-llama", "E0-distributed-llama-dp2",
                                           "E0-distributed-llama-frozen-mlp",
                                           "E0-distributed-starcoder2-tied-pp2",
                                           "E1-distributed-llama", "E1-distributed-llama-dp2",
                                           "E1-distributed-llama-tp2",
                                           "E1-distributed-llama-frozen-mlp",
                                           "E1-distributed-starcoder2-tied-pp2"));

TEST(Distributed, WholeShardsEqualTheFilesOfTheFixture) {
  const std::string name = "E1-distributed-llama-dp2";
  const auto expected = expected_of(name);
  const auto reader = distributed().open(fixture(name));
  ASSERT_NE(reader->world(), nullptr);
  EXPECT_EQ(plugin::stages_table()->ranks(reader->world()), 2);
  for (int rank : {0, 1}) {
    for (const std::string& state : states()) {
      const auto& file =
          expected["files"]["rank_" + std::to_string(rank) + ".safetensors"][state + "_shard"];
      std::vector<float> values(file["shape"][0].get<size_t>());
      TensorView view(values.data(), kFloat32, {int64_t(values.size())});
      reader->read_shard(rank, state, view.get());
      EXPECT_EQ(sha256_of(values), file["sha256"].get<std::string>());
    }
  }
}

TEST(Distributed, ReadsAnyBoxOfAParameter) {
  // dense: columns cut over two tensor ranks, so a column range crosses files and a transposed box
  // walks across them.
  const auto reader = distributed().open(fixture("E1-distributed-llama-tp2"));
  const std::string name = "layers.1.self_attn.dense.weight";  // [12, 16]
  const std::vector<float> whole =
      read_whole(*reader, "weights", {.name = name, .dtype = kFloat32, .shape = {12, 16}});
  const auto check = [&](int64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const fastllm_box box{int32_t(shape.size()), offset, shape.data(), strides.data()};
    int64_t count = 1;
    for (int64_t n : shape) count *= n;
    std::vector<float> values(size_t(count), -1.0f);
    TensorView view(values.data(), kFloat32, shape);
    reader->read("weights", name, &box, view.get());
    for (int64_t i = 0; i < count; ++i) {
      int64_t global = offset, rest = i;
      for (size_t d = shape.size(); d-- > 0;) {
        global += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      ASSERT_EQ(values[size_t(i)], whole[size_t(global)]) << i;
    }
  };
  check(0, {16, 12}, {1, 16});      // transposed
  check(5, {12, 6}, {16, 1});       // columns 5 to 10
  check(191, {1}, {1});             // the last element
  check(0, {6, 2, 8}, {32, 8, 1});  // every second row
  check(7, {}, {});                 // a scalar box
  check(3, {0, 4}, {16, 1});        // nothing
  const int64_t shape[] = {12, 16}, strides[] = {16, 1};
  const fastllm_box outside{2, 1, shape, strides};
  std::vector<float> values(192);
  TensorView view(values.data(), kFloat32, {12, 16});
  EXPECT_THAT(message_of([&] { reader->read("weights", name, &outside, view.get()); }),
              HasSubstr("expected a box inside a tensor of 192 elements"));
}

TEST(Distributed, RefusesLaterParameterNamesWithTheWayOut) {
  EXPECT_EQ(distributed().detect(fixture("E2-distributed-llama")), 100);
  const auto reader = distributed().open(fixture("E2-distributed-llama"));
  EXPECT_THAT(message_of([&] { reader->list(); }),
              AllOf(HasSubstr("found 0.4.0 with the parameter names of that release"),
                    HasSubstr("export it to a Hugging Face format")));
}

TEST(Distributed, DetectsByWhatLiesInAFolder) {
  EXPECT_EQ(distributed().detect(fixture("E1-fast_llm-llama")), 0);
  EXPECT_EQ(distributed().detect(fixture("E1-huggingface-llama")), 0);
  EXPECT_EQ(distributed().detect("/nowhere"), 0);
}

// A copy of a fixture with one thing changed.
class Damaged : public ::testing::Test {
 protected:
  Damaged() { copy_tree(fixture("E1-distributed-llama"), path()); }
  fs::path path() const { return folder_.path() / "checkpoint"; }
  void replace(const std::string& from, const std::string& to) {
    std::string text = read_file(path() / "metadata.yaml");
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file(path() / "metadata.yaml", text.replace(at, from.size(), to));
  }
  std::string open_message() {
    return message_of([&] { distributed().open(path())->list(); });
  }

 private:
  TemporaryDirectory folder_;
};

TEST_F(Damaged, VersionGate) {
  replace("fast_llm_version: 0.2.0", "fast_llm_version: 0.9.0");
  EXPECT_THAT(open_message(),
              AllOf(HasSubstr("expected fast_llm_version 0.0 to 0.4"), HasSubstr("found 0.9.0")));
}
TEST_F(Damaged, VersionThatIsNone) {
  replace("fast_llm_version: 0.2.0", "fast_llm_version: latest");
  EXPECT_THAT(open_message(), HasSubstr("found latest"));
}
TEST_F(Damaged, OldestKeyNamesAreRead) {
  replace("fast_llm_version: 0.2.0\nformat: distributed",
          "checkpoint_version: '0.1'\ncheckpoint_type: distributed");
  replace("shards:", "state_shard_names:");
  replace("model: gpt\n", "");
  replace("config:", "fast_llm_config:");
  const auto reader = distributed().open(path());
  EXPECT_EQ(reader->metadata().get<std::string>("model"), "gpt");
  EXPECT_EQ(reader->metadata().get<std::string>("fast_llm_version"), "0.1");
  EXPECT_EQ(reader->list().size(), 17u * 3);
}
TEST_F(Damaged, NoConfiguration) {
  replace("config:", "configuration:");
  EXPECT_THAT(open_message(), HasSubstr("expected the model's configuration under `config`"));
}
TEST_F(Damaged, OtherFormat) {
  replace("format: distributed", "format: fast_llm");
  EXPECT_THAT(open_message(), HasSubstr("expected format distributed"));
}
TEST_F(Damaged, NotYaml) {
  write_file(path() / "metadata.yaml", "config: {a: [\n");
  EXPECT_THAT(open_message(), HasSubstr(path().string()));
}
TEST_F(Damaged, NotAMapping) {
  write_file(path() / "metadata.yaml", "- 1\n");
  EXPECT_THAT(open_message(), HasSubstr("expected keys and values in"));
}
TEST_F(Damaged, ShardsThatDoNotBeginWithWeights) {
  replace("- weights\n- exp_avgs\n", "- exp_avgs\n- weights\n");
  EXPECT_THAT(open_message(), HasSubstr("a list that begins with weights"));
}
TEST_F(Damaged, ShardNamedTwice) {
  replace("- exp_avgs\n", "- weights\n");
  EXPECT_THAT(open_message(), HasSubstr("name each state once"));
}
TEST_F(Damaged, StateThatIsNotInTheFile) {
  replace("- exp_avgs_sq", "- momentum");
  EXPECT_THAT(open_message(),
              AllOf(HasSubstr("expected tensor momentum_shard"), HasSubstr("rank_0.safetensors")));
}
TEST_F(Damaged, FilesOfRanksMissing) {
  replace("world_size: 1\nfast", "world_size: 12\nfast");
  EXPECT_THAT(open_message(), AllOf(HasSubstr("expected the files of 12 ranks"),
                                    HasSubstr("rank_1.safetensors"), HasSubstr("and 3 more")));
}
TEST_F(Damaged, AbsurdWorldSize) {
  replace("world_size: 1\nfast", "world_size: 9000000000\nfast");
  EXPECT_THAT(open_message(), AllOf(HasSubstr("expected config.distributed.world_size from 1 to "),
                                    HasSubstr("metadata.yaml, found 9000000000")));
  replace("world_size: 9000000000\nfast", "world_size: 0\nfast");
  EXPECT_THAT(open_message(), HasSubstr("metadata.yaml, found 0"));
}
TEST_F(Damaged, ConfigurationThatDoesNotFitTheFiles) {
  replace("num_layers: 2", "num_layers: 3");
  EXPECT_THAT(open_message(),
              AllOf(HasSubstr("expected 5,280 elements of weights"), HasSubstr("found 3,936")));
}
TEST_F(Damaged, FileCutShort) {
  fs::resize_file(path() / "rank_0.safetensors", 30000);
  EXPECT_THAT(open_message(),
              AllOf(HasSubstr("expected 48,768 bytes as its header says, found 30,000 on disk"),
                    HasSubstr("tensor 'exp_avgs_sq_shard' is the first that is cut")));
}
TEST_F(Damaged, AbsentState) {
  const auto reader = distributed().open(path());
  float value = 0;
  TensorView view(&value, kFloat32, {1});
  EXPECT_THAT(message_of([&] { reader->read("momentum", "x", nullptr, view.get()); }),
              HasSubstr("expected state momentum"));
  EXPECT_THAT(message_of([&] { reader->read("weights", "x", nullptr, view.get()); }),
              HasSubstr("expected weights of parameter x"));
  EXPECT_THAT(message_of([&] {
                reader->read("weights", "layers.3.final_norm.weight", nullptr, view.get());
              }),
              HasSubstr("expected room for 12 elements of F32"));
  EXPECT_THAT(message_of([&] { reader->read_shard(7, "weights", view.get()); }),
              HasSubstr("expected a rank from 0 to 0"));
  EXPECT_THAT(message_of([&] { reader->read_shard(0, "weights", view.get()); }),
              HasSubstr("found 3,936"));
}

// ---------------------------------------------------------------- writing

void write_shards(Job& job, const fs::path& directory) {
  const auto writer = distributed().create(directory, job.metadata, job.rank);
  for (const std::string& state : states()) {
    writer->declare(state, {.name = "", .dtype = kFloat32, .shape = {job.tensor(state)->shape[0]}});
  }
  for (const std::string& state : states()) writer->write_shard(state, job.tensor(state));
  writer->finish(true);
}

// The parsed header, and the file's tensors by name.
nlohmann::json header_of(const fs::path& path) {
  const std::string file = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  return nlohmann::json::parse(file.substr(8, length));
}

// Gives a file's tensors another type of the same number of elements, all zero.
void make_doubles(const fs::path& path, const std::vector<std::string>& tensors) {
  nlohmann::json header = header_of(path);
  std::vector<std::pair<uint64_t, std::string>> order;  // as the data lies
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") order.emplace_back(entry["data_offsets"][0], name);
  }
  std::sort(order.begin(), order.end());
  uint64_t position = 0;
  for (const auto& [begin, name] : order) {
    nlohmann::json& entry = header[name];
    uint64_t bytes = entry["data_offsets"][1].get<uint64_t>() - begin;
    if (std::find(tensors.begin(), tensors.end(), name) != tensors.end()) {
      entry["dtype"] = "F64";
      bytes *= 2;
    }
    entry["data_offsets"] = {position, position + bytes};
    position += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  fs::remove(path);  // a reader that has it open keeps the old one
  write_file(path, std::string(reinterpret_cast<const char*>(&length), 8) + text +
                       std::string(position, '\0'));
}

TEST(Distributed, RanksOfDifferentTypesAreRefusedBeforeAnythingIsRead) {
  TemporaryDirectory folder;
  const fs::path path = folder.path() / "mixed";
  copy_tree(fixture("E1-distributed-llama-dp2"), path);
  make_doubles(path / "rank_1.safetensors", {"weights_shard", "exp_avgs_sq_shard"});
  const auto reader = distributed().open(path);
  const auto refusal = [&](const std::string& state) {
    return "expected " + state + " in " + (path / "rank_1.safetensors").string() +
           " to be F32 as in rank_0.safetensors, found F64";
  };
  EXPECT_THAT(message_of([&] { reader->list(); }),
              AllOf(HasSubstr(refusal("weights")), HasSubstr("copy the whole checkpoint again")));
  const model::Port embeddings{
      .name = "layers.0.word_embeddings_weight", .dtype = kFloat32, .shape = {50, 12}};
  for (const char* state : {"weights", "exp_avgs_sq"}) {
    EXPECT_THAT(message_of([&] { read_whole(*reader, state, embeddings); }),
                HasSubstr(refusal(state)));
  }
  EXPECT_EQ(read_whole(*reader, "exp_avgs", embeddings)[1], fixture_value("exp_avgs", 1, 1));
  // The loader, which moves whole shards where it can, does not get further either.
  Node metadata = metadata_of("E1-distributed-llama-dp2");
  Job job(metadata, 1);
  EXPECT_THAT(message_of([&] {
                checkpoint::load({.format = distributed(),
                                  .path = path,
                                  .states = job.flat_states(),
                                  .model = job.identity,
                                  .stages = plugin::stages_table()});
              }),
              HasSubstr(refusal("weights")));
}

class Rewritten : public ::testing::TestWithParam<const char*> {};

TEST_P(Rewritten, FilesEqualTheFixtureByteForByteApartFromTheOrderInTheHeader) {
  const std::string name = GetParam();
  const Node metadata = metadata_of(name);
  const auto reader = distributed().open(fixture(name));
  const int ranks = int(metadata.get<int64_t>("config.distributed.world_size"));
  TemporaryDirectory folder;
  for (int rank = ranks; rank-- > 0;) {  // rank 0 last, as the host does
    Node mine = metadata;
    mine.set("config.distributed.rank", Node::integer(rank));
    Job job(mine, rank);
    for (const std::string& state : states()) reader->read_shard(rank, state, job.tensor(state));
    write_shards(job, folder.path());
    const std::string file = "rank_" + std::to_string(rank) + ".safetensors";
    EXPECT_EQ(header_of(folder.path() / file), header_of(fixture(name) / file));
    const std::string ours = read_file(folder.path() / file),
                      theirs = read_file(fixture(name) / file);
    const size_t data =
        expected_of(name)["files"][file]["weights_shard"]["shape"][0].get<size_t>() * 4;
    EXPECT_EQ(ours.size(), theirs.size());
    EXPECT_EQ(ours.substr(ours.size() - data),
              theirs.substr(theirs.size() - data));  // weights lie last
    EXPECT_EQ(fs::exists(folder.path() / "metadata.yaml"), rank == 0);
  }
  EXPECT_EQ(read_file(folder.path() / "metadata.yaml"), read_file(fixture(name) / "metadata.yaml"));
}

INSTANTIATE_TEST_SUITE_P(OfAge1, Rewritten,
                         ::testing::Values("E1-distributed-llama", "E1-distributed-llama-dp2",
                                           "E1-distributed-llama-tp2",
                                           "E1-distributed-llama-frozen-mlp",
                                           "E1-distributed-starcoder2-tied-pp2"));

// More ranks than the reader keeps files open for: rank 1's is closed after the listing and opened
// anew.
TEST(Distributed, AFileThatChangesWhileItIsReadIsRefused) {
  constexpr int kRanks = 66;
  const Node metadata = small_metadata("", "{world_size: " + std::to_string(kRanks) + "}");
  TemporaryDirectory folder;
  for (int rank = kRanks; rank-- > 0;) {
    Job job(metadata, rank);
    job.fill();
    write_shards(job, folder.path());
  }
  const model::Port embeddings{
      .name = "layers.0.word_embeddings_weight", .dtype = kFloat32, .shape = {50, 12}};
  EXPECT_EQ(read_whole(*distributed().open(folder.path()), "weights", embeddings)[599],
            1.0f + 599.0f / 65536);
  const auto reader = distributed().open(folder.path());
  reader->list();
  make_doubles(folder.path() / "rank_1.safetensors", {"weights_shard"});
  EXPECT_THAT(message_of([&] { read_whole(*reader, "weights", embeddings); }),
              AllOf(HasSubstr("rank_1.safetensors to be F32 with at least "),
                    HasSubstr(" elements, found F64 with "),
                    HasSubstr("the file was changed while it was read")));
}

TEST(DistributedWriter, MetadataIsSortedSparseAndReadableByOlderYaml) {
  Job job(small_metadata());
  job.metadata.set("metadata.metrics", Node::map());  // an empty block is left out
  job.metadata.set("metadata.zeta", Node::real(1e-5));
  job.metadata.set("metadata.alpha", Node::text("1e-5"));
  job.metadata.set("metadata.loss", Node::real(std::numeric_limits<double>::quiet_NaN()));
  job.metadata.set("metadata.whole", Node::real(2));
  job.metadata.set("metadata.seed", Node::big_integer("1125899906842624000000000"));
  Node list = Node::list(), entry = Node::map();
  entry.set("b", Node::integer(2));
  entry.set("a", Node::integer(1));
  list.append(entry);
  list.append(Node::integer(7));
  job.metadata.set("metadata.list", list);
  job.metadata.set("options.secret", Node::integer(1));  // not a key of this format
  TemporaryDirectory folder;
  write_shards(job, folder.path());
  const std::string text = read_file(folder.path() / "metadata.yaml");
  EXPECT_THAT(text, HasSubstr("metadata:\n  alpha: '1e-5'\n  list:\n  - a: 1\n    b: 2\n  - 7\n  "
                              "loss: .nan\n  seed: 1125899906842624000000000\n"
                              "  whole: 2.0\n  zeta: 1.0e-05\nmodel: gpt\n"));
  EXPECT_EQ(text.find("options"), std::string::npos);
  EXPECT_EQ(text.find("metrics"), std::string::npos);
}

TEST(DistributedWriter, WritesByNameWhatItWritesByShard) {
  const std::string base = "{transformer.mlp_lr_scale: [0.0], tie_word_embeddings: true}";
  // Two data ranks, columns and rows in pieces; two pipeline ranks that both hold the embedding.
  // Each keeps its part of what it is handed.
  for (const char* world :
       {"{world_size: 4, tensor_parallel: 2}", "{world_size: 4, pipeline_parallel: 2}"}) {
    SCOPED_TRACE(world);
    const Node metadata = small_metadata(base, world);
    TemporaryDirectory by_shard, by_name;
    for (int rank = 3; rank >= 0; --rank) {
      Job job(metadata, rank);
      job.fill();
      write_shards(job, by_shard.path());
      const auto writer = distributed().create(by_name.path(), job.metadata, rank);
      Job whole(small_metadata(base));
      whole.fill();
      job.run();
      const auto each = [&](auto&& body) {
        for (const std::string& state : states()) {
          for (const model::Parameter& p : job.description.parameters) {
            if (state == "weights" || !p.frozen()) body(state, p);
          }
        }
      };
      each([&](const std::string& state, const model::Parameter& p) {
        writer->declare(state, {.name = p.name, .dtype = kFloat32, .shape = p.shape});
      });
      each([&](const std::string& state, const model::Parameter& p) {
        std::vector<float> values = whole.gather(state, p.name);
        // In two boxes, the second one first.
        const int64_t half = p.elements() / 2;
        for (const auto& [offset, count] :
             {std::pair(half, p.elements() - half), std::pair(int64_t(0), half)}) {
          const int64_t shape[] = {count}, strides[] = {1};
          const fastllm_box box{1, offset, shape, strides};
          TensorView view(values.data() + offset, kFloat32, {count});
          writer->write(state, p.name, &box, view.get());
        }
      });
      writer->finish(true);
      const std::string file = "rank_" + std::to_string(rank) + ".safetensors";
      EXPECT_EQ(read_file(by_name.path() / file), read_file(by_shard.path() / file));
    }
  }
}

TEST(DistributedWriter, RefusesWhatWasNotDeclaredOrIsNotComplete) {
  Job job(small_metadata());
  const DLTensor* flat = job.tensor("weights");
  const auto try_write = [&](auto&& body) {
    TemporaryDirectory folder;
    const auto writer = distributed().create(folder.path(), job.metadata, 0);
    return message_of([&] { body(*writer); });
  };
  const model::Port port{.name = "", .dtype = kFloat32, .shape = {flat->shape[0]}};
  EXPECT_THAT(try_write([&](auto& w) { w.write_shard("weights", flat); }),
              HasSubstr("expected weights to be declared"));
  EXPECT_THAT(try_write([&](auto& w) {
                w.declare("weights", port);
                w.declare("weights", port);
              }),
              HasSubstr("declared twice or otherwise"));
  EXPECT_THAT(try_write([&](auto& w) {
                w.declare("weights", port);
                w.finish(true);
              }),
              HasSubstr("expected all declared elements of weights"));
  EXPECT_THAT(try_write([&](auto& w) {
                w.declare("weights",
                          {.name = "", .dtype = kFloat32, .shape = {flat->shape[0] + 1}});
                w.write_shard("weights", flat);
              }),
              HasSubstr("expected 3937 elements as declared"));
  EXPECT_THAT(try_write([&](auto& w) {
                w.declare("weights", {.name = "layers.0.word_embeddings_weight",
                                      .dtype = kFloat32,
                                      .shape = {12, 50}});
              }),
              HasSubstr("with the shape of the running model"));
  EXPECT_THAT(try_write([&](auto& w) {
                w.declare("weights", {.name = "", .dtype = {kDLComplex, 128, 1}, .shape = {1}});
              }),
              HasSubstr("expected a dtype that safetensors knows"));
  EXPECT_THAT(message_of([&] { distributed().create("/nowhere", job.metadata, 0)->finish(true); }),
              HasSubstr("cannot write /nowhere/rank_0.safetensors"));
}

}  // namespace
}  // namespace fastllm::test
