// One line that changes when a data file does; cheap for files of any size.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fastllm::data {

// "{name}: {size} bytes, sha256 {digest}" over all bytes, for files of at most 16 MiB. A larger one
// is sampled, so that terabytes cost no more: 16 blocks of 1 MiB, evenly spread, the first and the
// last bytes of the file among them; the digest is that of the blocks' digests. With the size, this
// tells other data from the same; it is no proof of identity.
std::string fingerprint_sampled(const std::string& name, std::span<const std::byte> bytes);

}  // namespace fastllm::data
