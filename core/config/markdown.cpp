// The reference page: a table for each block, in the order of dumps.
#include <fmt/format.h>

#include "core/config/resolve.hpp"
#include "core/config/schema_impl.hpp"
#include "core/config/value.hpp"

namespace fastllm::config {
namespace {

std::string cell(std::string text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Writer {
 public:
  explicit Writer(const Schema& schema) : schema_(schema) {}

  std::string run() {
    block(schema_.impl().root, "", "Root");
    for (const auto& [name, family] : schema_.impl().families) {
      text_ += fmt::format("## Blocks of kind {}\n\n{}\n\n", name, family.help);
      for (const std::string& type : family.types)
        block(family.blocks.at(type), "", fmt::format("{} with type: {}", name, type), "###");
    }
    return std::move(text_);
  }

 private:
  // Keys of a block and of the blocks inside it that only group keys; a section of its own for each
  // one that is described.
  void block(const Block& declared, const std::string& path, const std::string& title,
             const char* heading = "##") {
    std::string rows;
    std::vector<std::pair<const Block*, std::string>> sections;
    collect(declared, path, "", rows, sections);
    if (!rows.empty() || !declared.help.empty()) text_ += fmt::format("{} {}\n\n", heading, title);
    if (!declared.help.empty()) text_ += declared.help + "\n\n";
    if (!rows.empty())
      text_ += "| key | value | default | meaning |\n| --- | --- | --- | --- |\n" + rows + "\n";
    for (const auto& [section, section_path] : sections)
      block(*section, section_path, "`" + section_path + "`");
  }

  void collect(const Block& declared, const std::string& path, const std::string& prefix,
               std::string& rows, std::vector<std::pair<const Block*, std::string>>& sections) {
    for (const Entry& entry : declared.entries) {
      std::string key = join_path(prefix, entry.key), full = join_path(path, entry.key);
      if (entry.field) {
        rows += field_row(key, *entry.field);
      } else if (entry.nested) {
        rows += nested_row(key, *entry.nested);
      } else if (entry.block->help.empty()) {
        collect(*entry.block, full, key, rows, sections);
      } else {
        sections.emplace_back(entry.block.get(), full);
      }
    }
  }

  static std::string field_row(const std::string& key, const Field& field) {
    std::string help = field.help;
    if (field.policy == Policy::kNoEffect) help += " No effect here.";
    if (field.policy == Policy::kRefused)
      help += fmt::format(" Other values are refused: {}.", field.policy_reason);
    if (field.architecture) help += " Part of the architecture.";
    for (const std::string& old : field.aliases) help += fmt::format(" Old name: `{}`.", old);
    std::string fallback = field.required ? "required" : "`" + field.fallback + "`";
    return fmt::format("| `{}` | {} | {} | {} |\n", key, cell(expected_text(field)), cell(fallback),
                       cell(help));
  }

  std::string nested_row(const std::string& key, const Nested& nested) {
    std::string types;
    for (const std::string& type : nested.types) types += (types.empty() ? " (" : ", ") + type;
    if (!types.empty()) types += ")";
    std::string value =
        nested.form == Nested::Form::kOne ? fmt::format("a {}{}", nested.family, types)
        : nested.form == Nested::Form::kList
            ? fmt::format("a list of at least {} {}s{}", nested.minimum, nested.family, types)
            : fmt::format("a block of {}s{}", nested.family, types);
    std::string help = nested.help;
    if (!nested.keys.empty()) {
      help += " Keys:";
      for (const std::string& name : nested.keys) help += fmt::format(" `{}`", name);
      help += nested.free_names ? ", and names of your own." : ".";
    }
    bool optional = nested.form == Nested::Form::kKeyed;
    return fmt::format("| `{}` | {} | {} | {} |\n", key, cell(value),
                       optional ? "`{}`" : "required", cell(help));
  }

  const Schema& schema_;
  std::string text_;
};

}  // namespace

std::string markdown_reference(const Schema& schema) {
  return "# Configuration\n\n"
         "Every key of a training configuration, made by `fastllm-host schema --markdown` from the "
         "declared keys: a change\nbelongs there.\n\n"
         "A file is YAML 1.2: `1e-4` is a number, `1_000` and `on` are texts, a repeated key is an "
         "error. A number without a dot\npasses where one with a dot is declared, never the other "
         "way round; a boolean never passes for a number. On the command\nline `a.b.c=VALUE` sets "
         "a "
         "key over the file, VALUE in YAML; it replaces what was there, lists and blocks whole. "
         "Defaults\nof `null` that say what they stand for are computed, and the resolved "
         "configuration shows the result.\n\n" +
         Writer(schema).run();
}

}  // namespace fastllm::config
