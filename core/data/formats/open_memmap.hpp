// The dataset type `memmap` of a configuration: one file of the later format, or a pair of files.
#pragma once

#include <filesystem>
#include <memory>

#include "core/data/formats/document_file.hpp"

namespace fastllm::data {

// path: that of a *.fast_llm_dataset file (any name, if it begins like one), or a prefix of .idx and
// .bin.
std::shared_ptr<const DocumentFile> open_memmap(const std::filesystem::path& path,
                                                const MemmapExpectations& expected = {});

}  // namespace fastllm::data
