// Opening, greeting and checking one library. A library is opened for good, even when
// it is refused afterwards.
#include "core/plugin/library.hpp"

#include <dlfcn.h>
#include <fastllm/converter.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstring>

#include "core/base/file.hpp"
#include "core/plugin/crash.hpp"
#include "core/plugin/elf.hpp"
#include "core/plugin/format_proxy.hpp"
#include "core/plugin/host_services.hpp"
#include "core/plugin/model_proxy.hpp"
#include "core/plugin/normalise.hpp"
#include "core/plugin/sink.hpp"

#include <memory>
#include <mutex>

namespace fastllm::plugin {
namespace {

constexpr int32_t kMaxTables = 64;  // of one kind in one plugin

// Opens for good: the object is kept until the process ends, so the library is never closed. Any thread.
boost::dll::shared_library& open_library(const std::filesystem::path& path) {
  static auto* const kept = new std::vector<std::unique_ptr<boost::dll::shared_library>>;
  static std::mutex mutex;
  auto opened = std::make_unique<boost::dll::shared_library>();
  boost::dll::shared_library* const library = opened.get();
  auto mode = static_cast<boost::dll::load_mode::type>(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  try {
    library->load(boost::filesystem::path(path.string()),
                  mode);  // only this overload keeps dlerror's text
  } catch (const std::exception& e) {
    // Boost says "boost::dll::shared_library::load() failed (dlerror system message: TEXT): Bad
    // file descriptor".
    std::string_view text = e.what(), mark = "dlerror system message: ";
    if (size_t begin = text.find(mark); begin != std::string_view::npos) {
      text.remove_prefix(begin + mark.size());
      text = text.substr(0, text.rfind("): "));
    }
    throw Error(Status::kUnavailable, fmt::format("cannot be loaded: {}", text));
  }
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(opened));
  return *library;
}

// What get() brought must be what the manifest promised: configuration was judged by the manifest.
void check_agreement(const char* kind, std::vector<std::string> promised,
                     std::vector<std::string> offered) {
  std::sort(promised.begin(), promised.end());
  std::sort(offered.begin(), offered.end());
  if (promised == offered) return;
  throw Error(Status::kInternal,
              fmt::format("expected the {}s of its manifest ({}), found ({}) in its tables", kind,
                          fmt::join(promised, ", "), fmt::join(offered, ", ")));
}

}  // namespace

template <class Table>
void Library::each_table(const char* id, const std::function<void(const Table*)>& use) {
  for (int32_t index = 0;; ++index) {
    const void* table = call_value(*identity_, "get", id, door_.get, id, index);
    if (!table) return;
    if (index == kMaxTables)
      throw Error(
          Status::kInternal,
          fmt::format("expected get(\"{}\", {}) to return NULL at last, found one more table", id,
                      index));
    use(static_cast<const Table*>(table));
  }
}

void Library::greet(fastllm_plugin const* (*entry)(fastllm_host const*)) {
  {
    CallScope scope(*identity_, kEntrySymbol);
    const fastllm_plugin* door = nullptr;
    try {
      door = entry(host_table());
    } catch (...) {
      throw_foreign_exception();
    }
    if (!door) {
      throw Error(Status::kUnsupported,
                  failure_given()
                      ? "refused this host: " + latest_failure()
                      : "refused this host and gave no reason; this is a fault of the plugin");
    }
    door_ = normalise(
        door, "fastllm_plugin",
        {FASTLLM_REQUIRE(fastllm_plugin, manifest), FASTLLM_REQUIRE(fastllm_plugin, get)});
    auto section = read_elf_section(candidate_.path, ".fastllm");
    FASTLLM_ASSERT(section && "its manifest was read before");
    std::string_view said(door_.manifest, strnlen(door_.manifest, section->size() + 1));
    if (section->substr(0, section->find('\0')) != said) {
      throw Error(Status::kInternal,
                  "expected fastllm_plugin.manifest to be the text of section .fastllm, found "
                  "another text");
    }
  }
  CallScope scope(*identity_, "tables");
  std::vector<std::string> types;
  each_table<fastllm_model_api>(FASTLLM_MODEL, [&](const fastllm_model_api* table) {
    models_.push_back(make_model_factory(identity_, table));
    types.push_back(models_.back()->type());
  });
  check_agreement("model", candidate_.manifest.models, types);
  types.clear();
  each_table<fastllm_format_api>(FASTLLM_FORMAT, [&](const fastllm_format_api* table) {
    formats_.push_back(make_format(identity_, table));
    types.push_back(formats_.back()->type());
  });
  check_agreement("format", candidate_.manifest.formats, types);
  for (const auto& format : formats_) {
    uint32_t promised = manifest_caps(candidate_.manifest, format->type());
    if (promised != format->caps()) {
      throw Error(
          Status::kInternal,
          fmt::format(
              "expected the abilities of format {} in its manifest ({}), found ({}) in its table",
              format->type(), caps_text(promised), caps_text(format->caps())));
    }
  }
  std::vector<std::string> pairs;
  each_table<fastllm_converter_api>(FASTLLM_CONVERTER, [&](const fastllm_converter_api* table) {
    auto api = normalise(table, "fastllm_converter_api",
                         {FASTLLM_REQUIRE(fastllm_converter_api, pairs),
                          FASTLLM_REQUIRE(fastllm_converter_api, config),
                          FASTLLM_REQUIRE(fastllm_converter_api, rules)});
    fastllm_sink sink(Describing::kPairs);
    call_status(*identity_, "pairs", -1, nullptr, api.pairs, emit_table(), &sink);
    sink.check();
    for (const auto& pair : sink.pairs)
      pairs.push_back(fmt::format("{}:{}:{}", pair.format, pair.model, pair.external_type));
  });
  check_agreement("converter", candidate_.manifest.converters, pairs);
}

Library::Library(const Candidate& candidate)
    : candidate_(candidate),
      identity_(Identity::make(candidate.manifest.id, candidate.manifest.version,
                               candidate.path.filename().string())),
      info_{candidate.manifest.id, candidate.manifest.version, candidate.path.string(),
            sha256_file_hex(candidate.path), candidate.manifest.needs} {
  install_crash_handlers();
  try {
    fastllm_plugin const* (*entry)(fastllm_host const*) = nullptr;
    {
      CallScope scope(*identity_, "loading");  // static constructors are code, too
      auto& library = open_library(candidate.path);
      if (!library.has(kEntrySymbol))
        throw Error(Status::kInvalid,
                    fmt::format("expected the exported function {}, found none", kEntrySymbol));
      entry = &library.get<fastllm_plugin const*(fastllm_host const*)>(kEntrySymbol);
    }
    greet(entry);
  } catch (Error& e) {
    if (std::string_view(e.what()).starts_with(identity_->label)) throw;
    throw Error(e.status(), fmt::format("{}: {}", identity_->label, e.what()));
  }
}

void Library::shutdown() noexcept {
  if (auto function = std::exchange(door_.shutdown, nullptr))
    call_release(*identity_, "shutdown", function);
}

}  // namespace fastllm::plugin
