// The dataset type `memmap` of a configuration: one file of the later format, or a pair of files.
#pragma once

#include <filesystem>

#include "core/data/formats/memmap.hpp"
#include "core/data/indexed.hpp"

namespace fastllm::data {

// path: that of a *.fast_llm_dataset file (any name, if it begins like one), or a prefix of .idx and
// .bin.
IndexedPointer open_memmap(const std::filesystem::path& path,
                           const MemmapExpectations& expected = {});

}  // namespace fastllm::data
