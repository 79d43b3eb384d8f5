// Declared configuration: every key that exists, core's and plugins' alike. One list drives
// reading, defaults, errors, help, the JSON Schema, the dumps and the reference page in docs/.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/config/node.hpp"

namespace fastllm::config {

// Values equal FASTLLM_I64 ... of <fastllm/plugin.h>, plus two of core's own.
enum class Type {
  kInt,
  kReal,
  kBool,
  kText,
  kNode,
  kIntList,
  kRealList,
  kTextList,
  kBigInt,    // an integer of any size
  kTextDict,  // map of text to text
  kDtype,     // a number format by name; aliases (bf16) and prefixes (torch.) become the plain name
};

// How important a key is: what a dump of a given verbosity leaves out when it has its default
// (docs/compatibility.md).
enum Level {
  kCore = 0,
  kOptional = 10,
  kFeature = 10,
  kPerformance = 20,
  kStability = 20,
  kLogging = 30,
  kExpert = 40,
  kTesting = 40,
  kDebug = 50,
  kDeprecated = 80,
  kWip = 80,
  kDerived = 100
};

// What a value other than the default does for a key that only the reference's implementation gives
// a meaning (docs/compatibility.md, policy): accepted with one log line, or refused.
enum class Policy { kHonoured, kNoEffect, kRefused };

// What a text stands for where a list is declared.
enum class FromText { kRefused, kOneEntry, kShellWords };

struct Field {
  std::string path;  // below the block it is declared in
  Type type = Type::kText;
  std::string fallback;  // default as YAML text: "1024", "[]", "null"
  std::string help;      // one sentence with the unit
  int level = kFeature;
  bool required = false, nullable = false;
  bool architecture = false;  // part of a checkpoint's identity
  bool derived = false;       // computed, never written
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool exclusive_minimum = false;
  std::vector<std::string> choices = {};
  // Older paths (whole paths below the same block), accepted with a warning. One that was a switch
  // fits a field with choices: false stands for the first choice, true for the second.
  std::vector<std::string> aliases = {};
  std::string null_means = {};  // for nullable: "keeps all", shown in errors and in the reference
  FromText from_text = FromText::kRefused;
  Policy policy = Policy::kHonoured;
  std::string policy_reason = {};  // for kRefused: why
};

// A place for blocks of a family: their own key `type` says which keys they have ("dataset":
// memmap, blended, ...).
struct Nested {
  enum class Form { kOne, kList, kKeyed };
  std::string path;  // below the block it is declared in
  Form form = Form::kOne;
  std::string family;
  std::string help;
  std::vector<std::string> types = {};  // those allowed here; empty: all of the family
  std::vector<std::string> keys = {};   // kKeyed: the known names, in the order of dumps
  // kKeyed: names beyond those are taken too; their owner says which of them mean something.
  bool free_names = false;
  size_t minimum = 0;  // kList: entries
};

// All keys of a program. Blocks nest by dots in paths; polymorphic and keyed blocks are declared
// apart. Order of declaration is the order of dumps.
class Schema {
 public:
  Schema();
  ~Schema();
  Schema(Schema&&) noexcept;
  Schema& operator=(Schema&&) noexcept;

  // block: where the field's path begins ("model.base_model", "" for the root). A path that is
  // declared already, a default that its own type refuses: Error(kInternal), since that is a
  // mistake of whoever declares.
  // A step `*` stands for blocks that the user names: each block there whose name is no declared
  // key. They follow the declared keys in dumps.
  void add(const std::string& block, const Field& field);
  void add(const std::string& block, const std::vector<Field>& fields);
  void add(const std::string& block, const Nested& nested);
  // Families are named, not nested, so that a block may hold others of its own family. The keys of
  // a type are added with the block "family:type"; its key `type` stands before them in dumps, or
  // after them.
  void add_family(const std::string& family, const std::string& help);
  void add_type(const std::string& family, const std::string& type, const std::string& help,
                bool type_last = false);
  // One sentence for a block, shown in help, JSON Schema and the reference page.
  void describe(const std::string& block, const std::string& help);
  // A key of a later release ("training.evaluators") and what to say ("training.validation (a block
  // for each set)"). Said only when the key that `today` begins with is declared, since models differ.
  void add_later_name(const std::string& path, const std::string& today);
  // The same for a type of a family; today: a type of now, or "": there is nothing like it.
  void add_later_type(const std::string& family, const std::string& type, const std::string& today);

  struct Impl;
  Impl& impl() { return *impl_; }  // for core/config itself
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::config
