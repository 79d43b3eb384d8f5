// The process that tokenizes, played by small scripts that do what they should not: each ends in a
// sentence, none in a hang or a crash. The real script is started too, with a package of a few
// lines in place of Hugging Face's.
#include "core/data/tokenizers/tokenizer_worker.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

#include "core/base/cancel.hpp"
#include "core/data/tokenizers/huggingface_tokenizer.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPython = "/usr/bin/python3";

// What the scripts share: frames, and one right greeting.
constexpr const char* kPrelude = R"(
import os, signal, socket, struct, sys, time
s = socket.socket(fileno=0)
def frame(kind, body, magic=b"FLTK", length=None):
    s.sendall(struct.pack("<4sc3xQ", magic, kind, len(body) if length is None else length) + body)
def greet(): frame(b"h", b'{"vocabulary": 100}')
def request():
    header = b""
    while len(header) < 16: header += s.recv(16 - len(header))
    size = struct.unpack("<Q", header[8:])[0]
    body = b""
    while len(body) < size: body += s.recv(size - len(body))
    return body
def answer(count=1, sizes=(2,), ids=(7, 8), length=None):
    frame(b"e", struct.pack(f"<Q{len(sizes)}I{len(ids)}i", count, *sizes, *ids), length=length)
)";

class Worker : public ::testing::Test {
 protected:
  WorkerCommand command(const std::string& script) {
    fs::path path = folder_.path() / "worker.py";
    write_file_atomic(path, kPrelude + script);
    WorkerCommand result{kPython, path, folder_.path()};
    // Long beside what a machine under load needs; only what never answers gets there.
    result.start_limit = result.answer_limit = std::chrono::seconds(60);
    return result;
  }
  // Of starting; the message, or the refusal.
  std::string start_error(const std::string& script) {
    try {
      return message_of([&] { TokenizerWorker worker(command(script)); }, Status::kUnavailable);
    } catch (const WorkerRefusal& refusal) {
      return "refused: " + refusal.sentence;
    }
  }
  std::string encode_error(const std::string& script) {
    TokenizerWorker worker(command("greet()\n" + script));
    TokenBatch batch;
    std::string_view texts[] = {"text"};
    try {
      return message_of([&] { worker.encode_batch(texts, batch); }, Status::kUnavailable);
    } catch (const WorkerRefusal& refusal) {
      return "refused: " + refusal.sentence;
    }
  }

  TemporaryDirectory folder_;
};

TEST_F(Worker, AnswersInFrames) {
  TokenizerWorker worker(command(R"(
greet()
assert request() == struct.pack("<Q2I", 2, 2, 3) + b"hixyz"
answer(2, (1, 3), (4, 0, 99, 5))
assert request() == struct.pack("<2i", 4, 99)
frame(b"d", b"hi\xff")
assert request() == b"<s>"
frame(b"t", struct.pack("<i", 42))
assert request() == b"none"
frame(b"t", struct.pack("<i", -1))
)"));
  EXPECT_EQ(worker.vocabulary(), 100);
  TokenBatch batch;
  std::string_view texts[] = {"hi", "xyz"};
  worker.encode_batch(texts, batch);
  EXPECT_THAT(batch.tokens, ElementsAre(4, 0, 99, 5));
  EXPECT_THAT(batch.sizes, ElementsAre(1, 3));
  EXPECT_EQ(worker.decode(std::vector<int32_t>{4, 99}), "hi\xEF\xBF\xBD");
  EXPECT_EQ(worker.token_id("<s>"), 42);
  EXPECT_EQ(worker.token_id("none"), -1);
}

TEST_F(Worker, FailsToStartWithASentence) {
  EXPECT_THAT(start_error("sys.exit(3)"),
              AllOf(HasSubstr("ended without an answer"), HasSubstr("ended with exit code 3")));
  EXPECT_THAT(
      start_error("raise RuntimeError('what happened')"),
      AllOf(HasSubstr("exit code 1"), HasSubstr("last words: RuntimeError: what happened")));
  EXPECT_THAT(start_error("os.kill(os.getpid(), signal.SIGKILL)"),
              AllOf(HasSubstr("signal 9 (Killed)"), HasSubstr("lack of memory")));
  EXPECT_THAT(start_error("os.write(0, b'Hello, this is no frame')"),
              HasSubstr("answered 'Hello, this is n', which is no frame"));
  EXPECT_THAT(start_error("os.write(0, b'FLT')"), HasSubstr("ended without an answer"));
  EXPECT_THAT(start_error("frame(b'e', b'')"), HasSubstr("a frame of kind 101, expected 104"));
  EXPECT_THAT(start_error("frame(b'h', b'', length=1 << 60)"), HasSubstr("announced 1152921504"));
  EXPECT_THAT(start_error("frame(b'h', b'{', length=100)"), HasSubstr("ended without an answer"));
  for (const char* greeting : {"{", "[]", "{}", "{\"vocabulary\": 0}", "{\"vocabulary\": 1.5}",
                               "{\"vocabulary\": 2147483648}", "\\xff"}) {
    EXPECT_THAT(start_error("frame(b'h', b'" + std::string(greeting) + "')"),
                HasSubstr("instead of its vocabulary's size"))
        << greeting;
  }
  EXPECT_THAT(start_error("frame(b'x', b'no\\n tokenizer')"), "refused: no  tokenizer");
  EXPECT_THAT(start_error("frame(b'x', b'', length=1 << 20)"), HasSubstr("kind 120"));
  EXPECT_THAT(start_error("print('printed'); os.close(0); time.sleep(1000)"),
              AllOf(HasSubstr("ended without an answer"), HasSubstr("was killed")));
  EXPECT_THAT(
      message_of(
          [&] {
            WorkerCommand other = command("");
            other.python = "/no/such/python";
            TokenizerWorker worker(other);
          },
          Status::kNotFound),
      AllOf(HasSubstr("cannot start the Python /no/such/python"), HasSubstr("FASTLLM_PYTHON")));
}

TEST_F(Worker, FailsToAnswerWithASentence) {
  EXPECT_THAT(encode_error("request(); sys.exit(4)"), HasSubstr("exit code 4"));
  EXPECT_THAT(encode_error("sys.exit(5)"), HasSubstr("exit code 5"));
  EXPECT_THAT(encode_error("request(); frame(b'x', b'ValueError: bad')"),
              "refused: ValueError: bad");
  EXPECT_THAT(encode_error("request(); frame(b'e', b'', magic=b'FLTL')"), HasSubstr("no frame"));
  EXPECT_THAT(encode_error("request(); frame(b'e', b'1234')"),
              HasSubstr("announced 4 bytes, expected at least 12 for 1 texts"));
  EXPECT_THAT(encode_error("request(); answer(2, (1, 1), (3, 4))"),
              HasSubstr("answered 2 texts, expected 1"));
  EXPECT_THAT(encode_error("request(); answer(1, (3,), (3, 4))"),
              HasSubstr("announced 20 bytes, expected 24 for 3 tokens"));
  EXPECT_THAT(encode_error("request(); answer(1, (4294967295,), ())"),
              HasSubstr("for 4294967295 tokens"));
  EXPECT_THAT(encode_error("request(); answer(1, (1,), (3, 4))"), HasSubstr("expected 16"));
  EXPECT_THAT(encode_error("request(); answer(1, (2,), (3, 100))"),
              HasSubstr("the token id 100, expected one below its vocabulary's size 100"));
  EXPECT_THAT(encode_error("request(); answer(1, (2,), (-1, 3))"), HasSubstr("the token id -1"));
  // More than any text of 4 bytes can become, before anything is reserved for it.
  EXPECT_THAT(encode_error("request(); answer(length=1 << 40)"),
              HasSubstr("announced 1099511627776 bytes, expected at most 780"));
  EXPECT_THAT(encode_error("request(); answer(length=400)"), HasSubstr("expected 20"));
  EXPECT_THAT(encode_error("request(); os.write(0, b'FLTKe'); os.kill(os.getpid(), 15)"),
              HasSubstr("signal 15"));
}

TEST_F(Worker, FailsToDecodeWithASentence) {
  auto error = [&](const std::string& script) {
    TokenizerWorker worker(command("greet()\nrequest()\n" + script));
    return message_of([&] { worker.decode(std::vector<int32_t>{1}); }, Status::kUnavailable);
  };
  EXPECT_THAT(error("frame(b'd', b'', length=1 << 50)"), HasSubstr("expected at most 8192"));
  EXPECT_THAT(error("answer()"), HasSubstr("kind 101"));
  auto id_error = [&](const std::string& script) {
    TokenizerWorker worker(command("greet()\nrequest()\n" + script));
    return message_of([&] { worker.token_id("x"); }, Status::kUnavailable);
  };
  EXPECT_THAT(id_error("frame(b't', b'1')"), HasSubstr("an id of another size"));
  EXPECT_THAT(id_error("frame(b't', struct.pack('<i', 100))"), HasSubstr("the token id 100"));
  EXPECT_THAT(id_error("frame(b't', struct.pack('<i', -2))"), HasSubstr("the token id -2"));
}

TEST_F(Worker, IsKilledWhenItHangs) {
  WorkerCommand silent = command("time.sleep(1000)");
  silent.start_limit = std::chrono::milliseconds(50);
  EXPECT_THAT(message_of([&] { TokenizerWorker worker(silent); }, Status::kUnavailable),
              AllOf(HasSubstr("was silent for 0.05 s"), HasSubstr("was killed")));
  WorkerCommand stuck = command("greet()\nrequest()\ns.sendall(b'FLTK')\ntime.sleep(1000)");
  stuck.answer_limit = std::chrono::milliseconds(50);
  TokenizerWorker worker(stuck);
  TokenBatch batch;
  std::string_view texts[] = {"text"};
  pid_t process = worker.process();
  EXPECT_THAT(message_of([&] { worker.encode_batch(texts, batch); }, Status::kUnavailable),
              HasSubstr("was silent for 0.05 s"));
  EXPECT_EQ(::kill(process, 0), -1);  // gone, and waited for
  EXPECT_EQ(errno, ESRCH);
}

// More than a socket holds, and nobody reads it.
TEST_F(Worker, IsKilledWhenItTakesNoRequest) {
  WorkerCommand deaf = command("greet()\ntime.sleep(1000)");
  deaf.answer_limit = std::chrono::milliseconds(50);
  TokenizerWorker worker(deaf);
  const std::string text(20 << 20, 'x');
  TokenBatch batch;
  std::string_view texts[] = {text};
  EXPECT_THAT(message_of([&] { worker.encode_batch(texts, batch); }, Status::kUnavailable),
              AllOf(HasSubstr("was silent for 0.05 s"), HasSubstr("was killed")));
}

TEST_F(Worker, WaitsForNothingOnceASignalAsksToStop) {
  struct Asked {
    Asked() { stop_signal() = SIGINT; }
    ~Asked() { stop_signal() = 0; }
  };
  for (size_t size : {size_t(4), size_t(20) << 20}) {  // waits for an answer; still asks
    TokenizerWorker worker(command("greet()\nos.kill(os.getpid(), signal.SIGSTOP)"));
    const pid_t process = worker.process();
    const std::string text(size, 'x');
    TokenBatch batch;
    std::string_view texts[] = {text};
    const Asked asked;
    EXPECT_THAT(message_of([&] { worker.encode_batch(texts, batch); }, Status::kCancelled),
                HasSubstr("stopped while a tokenizer's process gave no answer"));
    EXPECT_EQ(::kill(process, 0), -1);
  }
}

TEST_F(Worker, DiesBeforeARequestThatIsLong) {
  // Writing to one that is gone is an error here, no signal.
  TokenizerWorker worker(command("greet()"));
  std::string text(20 << 20, 'x');
  TokenBatch batch;
  std::string_view texts[] = {text};
  EXPECT_THAT(message_of([&] { worker.encode_batch(texts, batch); }, Status::kUnavailable),
              HasSubstr("exit code 0"));
}

// The real script, before a package that takes letters for tokens.
class Script : public Worker {
 protected:
  void SetUp() override {
    make_directories(folder_.path() / "package" / "tokenizers");
    write_file_atomic(folder_.path() / "package" / "tokenizers" / "__init__.py", R"(
import json, sys, time
__version__ = "0.0.test"
print("a package that prints")
class AddedToken:
    def __init__(self, content, special=False, **flags): self.content, self.special = content, special
class Encoding:
    def __init__(self, ids): self.ids = ids
class Tokenizer:
    @staticmethod
    def from_file(path):
        self = Tokenizer()
        self.tokens = json.load(open(path))["tokens"]
        self.cut = True
        return self
    def no_truncation(self): self.cut = False
    def no_padding(self): pass
    def get_vocab(self, with_added_tokens): return {t: i for i, t in enumerate(self.tokens)}
    def token_to_id(self, token): return self.tokens.index(token) if token in self.tokens else None
    def add_tokens(self, tokens): self.tokens += [t.content for t in tokens]
    add_special_tokens = add_tokens
    def encode_batch(self, texts, add_special_tokens):
        assert not add_special_tokens and not self.cut
        if "sleep" in texts: time.sleep(1000)
        return [Encoding([self.tokens.index(c) for c in text]) for text in texts]
    def decode(self, ids, skip_special_tokens):
        assert not skip_special_tokens
        return "".join(self.tokens[i] for i in ids)
)");
    ::setenv("PYTHONPATH", (folder_.path() / "package").c_str(), 1);
    tokenizer({"a", "b", "\xC3\xA9", "<s>", "</s>"});
    write_file_atomic(folder_.path() / "tokenizer_config.json",
                      R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  }
  void TearDown() override {
    ::unsetenv("PYTHONPATH");
    ::unsetenv("FASTLLM_PYTHON");
    ::unsetenv("FASTLLM_CACHE");
  }
  void tokenizer(const std::vector<std::string>& tokens) {
    write_file_atomic(folder_.path() / "tokenizer.json", nlohmann::json{{"tokens", tokens}}.dump());
  }
  std::shared_ptr<const Tokenizer> open(int workers = 1) {
    return open_tokenizer({folder_.path().string(), {}, workers, kPython});
  }
};

TEST_F(Script, EncodesAndDecodes) {
  auto tokenizer = open();
  EXPECT_EQ(tokenizer->vocabulary(), 5);
  EXPECT_EQ(tokenizer->begin_id(), 3);
  EXPECT_EQ(tokenizer->end_id(), 4);
  EXPECT_EQ(tokenizer->pad_id(), std::nullopt);
  EXPECT_EQ(tokenizer->token_id("b"), 1);
  EXPECT_EQ(tokenizer->token_id("c"), std::nullopt);
  EXPECT_EQ(tokenizer->name(), (folder_.path() / "tokenizer.json").string());
  EXPECT_THAT(tokenizer->encode("ab\xC3\xA9", {true, true}), ElementsAre(3, 0, 1, 2, 4));
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{2, 0, 4}),
            "\xC3\xA9"
            "a</s>");
  EXPECT_EQ(tokenizer->decode({}), "");
  EXPECT_THAT(message_of([&] { tokenizer->decode(std::vector<int64_t>{5}); }, Status::kInvalid),
              HasSubstr("found 5 at position 0"));
  EXPECT_THAT(message_of([&] { tokenizer->encode("a\xFF"); }, Status::kInvalid),
              HasSubstr("0xff at offset 1"));
  // A failure of the package is told, and the next call gets another process.
  EXPECT_THAT(message_of([&] { tokenizer->encode("c"); }, Status::kUnavailable),
              AllOf(HasSubstr("failed encoding: ValueError"), HasSubstr("tokenizer.json")));
  EXPECT_THAT(tokenizer->encode("a"), ElementsAre(0));
}

TEST_F(Script, TakesBatchesOfAnySize) {
  auto tokenizer = open();
  std::vector<std::string> texts;
  for (size_t i = 0; i < 1000; ++i) texts.push_back(std::string(i % 7, "ab"[i % 2]));
  texts.push_back(std::string(3 << 20, 'b'));
  std::vector<std::string_view> views(texts.begin(), texts.end());
  TokenBatch batch;
  tokenizer->encode_batch(views, batch);
  ASSERT_EQ(batch.sizes.size(), texts.size());
  size_t at = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(size_t(batch.sizes[i]), texts[i].size());
    for (char c : texts[i]) ASSERT_EQ(batch.tokens[at++], c - 'a');
  }
  EXPECT_EQ(batch.tokens.size(), at);
}

TEST_F(Script, BoundsARequest) {
  WorkerCommand small{kPython, installed_worker_script(), folder_.path()};
  small.most_bytes = 5;
  HuggingFaceTokenizer tokenizer(read_tokenizer_folder(folder_.path()), small, 1);
  TokenBatch batch;
  std::string_view texts[] = {"aaa", "b", "", "bbbbb", "aa", "b"};  // more than one request
  tokenizer.encode_batch(texts, batch);
  EXPECT_THAT(batch.sizes, ElementsAre(3, 1, 0, 5, 2, 1));
  EXPECT_THAT(batch.tokens, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1));
  EXPECT_THAT(message_of([&] { tokenizer.encode("aaabbb"); }, Status::kInvalid),
              AllOf(HasSubstr("a text of at most 5 bytes"), HasSubstr("found 6; split it")));
}

TEST_F(Script, NoticesThatTheTokenizerChanged) {
  auto opened = open();
  tokenizer({"a", "b", "c", "<s>", "</s>", "more"});
  EXPECT_THAT(opened->encode("a"), ElementsAre(0));  // of the process that runs
  EXPECT_THAT(message_of([&] { opened->encode("z"); }), HasSubstr("failed encoding"));
  EXPECT_THAT(message_of([&] { opened->encode("a"); }, Status::kUnavailable),
              AllOf(HasSubstr("to stay at 5 tokens, found 6"), HasSubstr("changed meanwhile")));
}

TEST_F(Script, ServesThreads) {
  for (int workers : {1, 3}) {
    auto tokenizer = open(workers);
    std::vector<std::thread> threads;
    std::vector<int> wrong(6, 0);
    for (size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          std::string text(t + 1, "ab"[i % 2]);
          if (tokenizer->encode(text) != std::vector<int64_t>(t + 1, i % 2)) ++wrong[t];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(wrong, ::testing::Each(0));
  }
}

TEST_F(Script, AddsTokensThatOnlyTheConfigurationLists) {
  auto config = [&](const std::string& list) {
    write_file_atomic(
        folder_.path() / "tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": "<new>", "added_tokens_decoder": )" + list + "}");
  };
  config(R"({"6": {"content": "<other>"}, "4": {"content": "</s>", "special": true},
             "5": {"content": "<new>", "special": true, "lstrip": false}})");
  auto tokenizer = open();
  EXPECT_EQ(tokenizer->vocabulary(), 7);
  EXPECT_EQ(tokenizer->end_id(), 5);
  EXPECT_EQ(tokenizer->token_id("<other>"), 6);
  config(R"({"9": {"content": "<new>"}})");
  EXPECT_THAT(message_of([&] { open(); }, Status::kInvalid),
              AllOf(HasSubstr("expected the id 9 for the token '<new>'"), HasSubstr("found 5")));
  config("[1]");
  EXPECT_THAT(message_of([&] { open(); }, Status::kInvalid),
              HasSubstr("expected a JSON object with added_tokens_decoder"));
}

TEST_F(Script, NeedsBeginAndEnd) {
  auto error = [&](const std::string& config, const std::string& map) {
    write_file_atomic(folder_.path() / "tokenizer_config.json", config);
    write_file_atomic(folder_.path() / "special_tokens_map.json", map);
    return message_of([&] { open(); }, Status::kInvalid);
  };
  EXPECT_EQ(error("{}", R"({"bos_token": "<s>", "eos_token": "</s>"})"), "(no error)");
  EXPECT_THAT(error(R"({"bos_token": null, "eos_token": "</s>"})", "{}"),
              AllOf(HasSubstr("expected a beginning-of-sequence token for"),
                    HasSubstr("add bos_token to one of them")));
  EXPECT_THAT(error(R"({"bos_token": "<s>"})", "{}"),
              HasSubstr("expected an end-of-sequence token for"));
  EXPECT_THAT(error(R"({"bos_token": "<t>", "eos_token": "</s>"})", "{}"),
              AllOf(HasSubstr("'<t>' (bos_token) in the vocabulary of"), HasSubstr("found none")));
  EXPECT_THAT(error(R"({"bos_token": 5})", "{}"), HasSubstr("found number"));
  EXPECT_THAT(error("[]", "{}"), HasSubstr("expected a JSON object in"));
  EXPECT_THAT(error("{", "{}"), HasSubstr("text that is no JSON"));
}

TEST_F(Script, SaysWhichFileCannotBeRead) {
  write_file_atomic(folder_.path() / "tokenizer.json", "{}");
  EXPECT_THAT(message_of([&] { open(); }, Status::kInvalid),
              AllOf(HasSubstr("cannot read"), HasSubstr("tokenizer.json"), HasSubstr("0.0.test")));
  write_file_atomic(folder_.path() / "tokenizer.json",
                    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n");
  EXPECT_THAT(message_of([&] { open(); }, Status::kInvalid),
              AllOf(HasSubstr("a Git LFS pointer (real size 4976698672 bytes)"),
                    HasSubstr("git lfs pull")));
  auto path_error = [](const fs::path& path, Status status) {
    return message_of([&] { open_tokenizer({path.string(), {}, 1, ""}); }, status);
  };
  make_directories(folder_.path() / "empty");
  EXPECT_THAT(path_error(folder_.path() / "empty", Status::kNotFound),
              HasSubstr("expected tokenizer.json or tokenizer.model in the folder"));
  EXPECT_THAT(path_error("meta-llama/Llama-3.1-8B", Status::kNotFound),
              HasSubstr("download it first"));
  write_file_atomic(folder_.path() / "vocab.txt", "a");
  EXPECT_THAT(path_error(folder_.path() / "vocab.txt", Status::kInvalid),
              HasSubstr("a file called tokenizer.json or a SentencePiece file *.model"));
}

TEST_F(Script, LooksForAPythonWithThePackage) {
  ::setenv("PYTHONPATH", "/nonexistent", 1);
  std::string empty_cache = (folder_.path() / "cache").string();
  ::setenv("FASTLLM_CACHE", empty_cache.c_str(), 1);
  auto open_anywhere = [&](const std::string& python = "") {
    return open_tokenizer({folder_.path().string(), {}, 1, python});
  };
  // A Python without packages of the user or the system.
  fs::path bare = folder_.path() / "bare";
  write_file_atomic(bare, std::string("#!/bin/sh\nexec ") + kPython + " -S -s \"$@\"\n");
  fs::permissions(bare, fs::perms(0755));
  EXPECT_THAT(message_of([&] { open_anywhere(bare.string()); }, Status::kNotFound),
              AllOf(HasSubstr("expected a Python with the package tokenizers"),
                    HasSubstr("No module named 'tokenizers'"),
                    HasSubstr("run scripts/setup.sh --tokenizers")));
  ::setenv("FASTLLM_PYTHON", bare.c_str(), 1);
  EXPECT_THAT(message_of([&] { open_anywhere(); }, Status::kNotFound), HasSubstr(bare.string()));
  ::unsetenv("FASTLLM_PYTHON");
  // python3 lacks it: the one in the cache is next.
  fs::path cached = folder_.path() / "cache" / "tokenizers" / "bin";
  make_directories(cached);
  write_file_atomic(cached / "python",
                    "#!/bin/sh\nPYTHONPATH=" + (folder_.path() / "package").string() + " exec " +
                        kPython + " \"$@\"\n");
  fs::permissions(cached / "python", fs::perms(0755));
  std::string path = std::getenv("PATH");
  fs::path only = folder_.path() / "bin";
  make_directories(only);
  fs::copy_file(bare, only / "python3");
  ::setenv("PATH", only.c_str(), 1);
  EXPECT_EQ(open_anywhere()->vocabulary(), 5);
  fs::remove(only / "python3");  // not there at all
  EXPECT_EQ(open_anywhere()->vocabulary(), 5);
  ::setenv("PATH", path.c_str(), 1);
}

TEST_F(Script, EndsWhenThisProgramIsKilled) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      TokenizerWorker worker({kPython, installed_worker_script(), folder_.path()});
      pid_t process = worker.process();
      [[maybe_unused]] ssize_t written = ::write(pipe_ends[1], &process, sizeof(process));
      ::close(pipe_ends[1]);
      TokenBatch batch;
      std::string_view texts[] = {"sleep"};  // killed while the process is at work
      worker.encode_batch(texts, batch);
    } catch (...) {
    }
    ::_exit(1);
  }
  ::close(pipe_ends[1]);
  pid_t process = -1;
  ASSERT_EQ(::read(pipe_ends[0], &process, sizeof(process)), ssize_t(sizeof(process)));
  ::close(pipe_ends[0]);
  ASSERT_EQ(::kill(process, 0), 0);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // Nobody here may wait for it, so its entry among the processes is watched; a zombie has ended.
  auto ended = [&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string stat;
    return !std::getline(file, stat) || stat.find(") Z ") != std::string::npos;
  };
  for (int i = 0; i < 6000 && !ended(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(ended());
}

}  // namespace
}  // namespace fastllm::data
