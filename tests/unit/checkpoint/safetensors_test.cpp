// The plugin's container code, compiled into this program: files that are cut, odd, or lie about
// themselves.
#include "plugins/checkpoint/distributed/safetensors.hpp"

#include <cstring>
#include <fastllm/plugin.hpp>

#include "core/plugin/host_services.hpp"
#include "tests/unit/checkpoint/support.hpp"

namespace fastllm::test {
namespace {

using distributed::SafetensorsReader;
using distributed::SafetensorsWriter;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
constexpr DLDataType kFloat32{kDLFloat, 32, 1};

class Safetensors : public ::testing::Test {
 protected:
  Safetensors() { sdk::host_pointer() = plugin::host_table(); }
  fs::path path() const { return folder_.path() / "x.safetensors"; }
  // length < 0: the true one.
  void make(std::string header, const std::string& data, int64_t length = -1) {
    header.append((8 - header.size() % 8) % 8, ' ');
    const auto n = uint64_t(length < 0 ? int64_t(header.size()) : length);
    write_file(path(), std::string(reinterpret_cast<const char*>(&n), 8) + header + data);
  }
  std::string refusal() {
    try {
      SafetensorsReader reader(path().string());
    } catch (const sdk::Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path().string()));
      return e.what();
    }
    return "(no error)";
  }
  std::string refusal(const std::string& header, const std::string& data) {
    make(header, data);
    return refusal();
  }

 private:
  TemporaryDirectory folder_;
};

TEST_F(Safetensors, CutShort) {  // C01
  std::string data(64 * 64 * 4, 'x');
  make(R"({"model.norm.weight":{"dtype":"F32","shape":[64,64],"data_offsets":[0,16384]}})", data);
  fs::resize_file(path(), 9000);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("expected 16,472 bytes as its header says, found 9,000 on disk"),
                    HasSubstr("tensor 'model.norm.weight' is the first that is cut")));
  fs::resize_file(path(), 40);
  EXPECT_THAT(refusal(), HasSubstr("found a header length of 80"));
  fs::resize_file(path(), 5);
  EXPECT_THAT(refusal(), HasSubstr("expected at least 8 bytes, found 5"));
  fs::resize_file(path(), 0);
  EXPECT_THAT(refusal(), HasSubstr("found 0"));
}

TEST_F(Safetensors, GitLfsPointer) {  // C02
  write_file(path(), "version https://git-lfs.github.com/spec/v1\noid sha256:" +
                         std::string(64, '0') + "\nsize 4976698672\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("Git-LFS pointer (real size 4,976,698,672 bytes)"),
                               HasSubstr("git lfs pull")));
}

TEST_F(Safetensors, NoMetadataOfAnyKindIsFine) {  // C03
  for (const char* metadata : {"", R"("__metadata__":{},)", R"("__metadata__":null,)",
                               R"("__metadata__":{"format":"pt"},)"}) {
    make(
        std::string("{") + metadata + R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})",
        std::string(16, 'x'));
    EXPECT_EQ(refusal(), "(no error)") << metadata;
  }
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", ""),
              HasSubstr("expected text in __metadata__"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", ""),
              HasSubstr("expected a block of text as __metadata__"));
}

TEST_F(Safetensors, ShapesThatDoNotFitTheirBytes) {  // C05
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,16]}})",
                      std::string(16, 'x')),
              HasSubstr("tensor 'w': expected 4,000,000 bytes for shape [1000,1000] of F32, found "
                        "data_offsets [0,16]"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})",
                      std::string(4, 'x')),
              HasSubstr("expected a size that fits 63 bits"));
  EXPECT_THAT(
      refusal(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}})",
              std::string(4, 'x')),
      HasSubstr("expected a size that fits 63 bits"));
  make("{}", "", int64_t(1) << 40);
  EXPECT_THAT(refusal(), HasSubstr("found a header length of 1,099,511,627,776"));
}

TEST_F(Safetensors, ZeroSizesAndScalarsLoad) {  // C07
  make(R"({"scaled":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
       R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
       R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]}})",
       std::string(28, 'x'));
  SafetensorsReader reader(path().string());
  EXPECT_EQ(reader.find("scaled")->elements(), 0);
  EXPECT_EQ(reader.find("s")->elements(), 1);
  EXPECT_EQ(reader.find("w")->elements(), 6);
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,0]}})", ""),
              HasSubstr("expected 4 bytes"));
}

TEST_F(Safetensors, HeadersThatLie) {
  const std::string data(32, 'x');
  EXPECT_THAT(refusal("[1]", data), HasSubstr("expected a JSON object as header"));
  EXPECT_THAT(refusal("{\"w\":", data), HasSubstr("expected a JSON object as header"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                      R"("w":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}})",
                      data),
              HasSubstr("found 'w' twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                      R"("b":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})",
                      data),
              HasSubstr("overlaps or leaves a gap"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})", data),
              HasSubstr("expected its data at 0"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", data),
              HasSubstr("expected 80 bytes as its header says, found 96 on disk"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})", data),
              HasSubstr("found F33"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", data),
              HasSubstr("found -4"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})", data),
              HasSubstr("found 4.0"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,16]}})", data),
              HasSubstr("expected a list as shape"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[4],"data_offsets":[0,16]}})", data),
              HasSubstr("expected a dtype"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", data),
              HasSubstr("found data_offsets [16,0]"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,-1]}})", data),
              HasSubstr("expected two data_offsets"));
  EXPECT_THAT(refusal(R"({"a":7})", data), HasSubstr("expected dtype, shape and data_offsets"));
  EXPECT_THAT(refusal(std::string(1 << 20, '['), data),
              HasSubstr("expected a JSON object as header"));
}

TEST_F(Safetensors, WritesWhatItReads) {
  std::vector<float> weights(1000);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = float(i) / 7;
  {
    SafetensorsWriter writer(path().string());
    writer.set_metadata("format", "pt");
    writer.add("b", kFloat32, {10, 100});
    writer.add("half", {kDLBfloat, 16, 1}, {3});
    writer.add("a", kFloat32, {0, 5});
    writer.write("b", 500, 500, weights.data() + 500);  // any order
    writer.write("b", 0, 500, weights.data());
    writer.finish();
  }
  SafetensorsReader reader(path().string());
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  ASSERT_EQ(reader.tensors().size(), 3u);  // wide types first, then by name
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[1].name, "b");
  EXPECT_EQ(reader.tensors()[2].name, "half");
  std::vector<float> found(1000);
  reader.read(*reader.find("b"), 0, 1000, found.data());
  EXPECT_EQ(found, weights);
  std::vector<uint16_t> half(3, 7);
  reader.read(*reader.find("half"), 0, 3, half.data());
  EXPECT_EQ(half, std::vector<uint16_t>(3, 0));  // never written: zeros
  EXPECT_THROW(reader.read(*reader.find("b"), 999, 2, found.data()), sdk::Error);
  EXPECT_THROW(SafetensorsWriter(path().string()).finish(),
               sdk::Error);  // never over an existing file
}

TEST_F(Safetensors, TheReferenceLibraryOpensWhatWeWrite) {
  const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
  if (!python) GTEST_SKIP() << "FASTLLM_JUDGES_PYTHON is not set";
  std::vector<float> values(6);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i) + 0.25f;
  SafetensorsWriter writer(path().string());
  writer.set_metadata("note", "quotes \" and\nlines");
  writer.add("layers.0.w", kFloat32, {2, 3});
  writer.add("empty", kFloat32, {0});
  writer.add("scalar", kFloat32, {});
  writer.write("layers.0.w", 0, 6, values.data());
  writer.finish();
  const std::string script =
      "import sys; from safetensors import safe_open; f = safe_open(sys.argv[1], 'numpy')\n"
      "assert f.metadata() == {'note': 'quotes \" and\\nlines'}, f.metadata()\n"
      "assert sorted(f.keys()) == ['empty', 'layers.0.w', 'scalar'], f.keys()\n"
      "assert f.get_tensor('layers.0.w').tolist() == [[0.25, 1.25, 2.25], [3.25, 4.25, 5.25]]\n"
      "assert f.get_tensor('empty').shape == (0,) and f.get_tensor('scalar').shape == ()\n";
  write_file(path().string() + ".py", script);
  EXPECT_EQ(
      std::system((std::string(python) + " " + path().string() + ".py " + path().string()).c_str()),
      0);
}

}  // namespace
}  // namespace fastllm::test
