// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is to be written as a checkpoint: texts, and tensors that stay where they are.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tetrad/checkpoint/piece_hashes.h"
#include "tetrad/core/dtype.h"
#include "tetrad/core/memory_reader.h"

namespace tetrad {

struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  //!< not to change until they were read; it may be a device's memory
};

struct CheckpointContents {
  std::int64_t step = 0;
  std::string build;     //!< id of this build, for the manifest; UTF-8
  std::string run = {};  //!< id of the run, for the manifest
  std::map<std::string, std::vector<NamedTensor>>
      tensor_files;                               //!< such as "model.safetensors" → its tensors
  std::map<std::string, std::string> text_files;  //!< such as "state.json" → its text
  std::shared_ptr<void> memory = {};              //!< what tensors lie in that nobody else keeps
  /// How tensors are read, one for each of kHashThreads; none: they lie in the program's memory.
  std::vector<std::unique_ptr<MemoryReader>> readers = {};
  std::uint64_t piece_bytes = kPieceBytes;  //!< that one hash is of; another for tests

  /// All tensors were read, or never will be.
  void let_memory_go() {
    readers.clear();
    memory.reset();
  }
};

}  // namespace tetrad
