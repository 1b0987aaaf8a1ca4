// SPDX-License-Identifier: Apache-2.0
#pragma once
// safetensors files: a reader that trusts nothing, and a writer that leaves either the whole file or none.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/core/dtype.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/sha256.h"

namespace tetrad {

/// An open file. Everything in the header has been checked against the size of the file.
class SafetensorsFile {
 public:
  /// Throws Error (bad input) if the file cannot be read or is not sound.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorInfo>& tensors() const {
    return header_.tensors;
  }  //!< In the order of their offsets.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const { return header_.find(name); }  //!< nullptr: not there.

  /// Valid as long as this object. The format promises no alignment: copy elements out with memcpy.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;

  /// Gives back the memory behind these bytes, which were used and will hardly be again.
  void drop(std::span<const std::byte> bytes) const { file_.drop(bytes); }

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

/// Where everything lies in a file: the header first, and then the data of all tensors without a gap.
struct SafetensorsLayout {
  struct Tensor {
    std::string name;
    std::uint64_t bytes = 0;
  };
  std::string header;           //!< the first bytes of the file, up to the data
  std::vector<Tensor> tensors;  //!< in the order of their data
};

/// The names are sorted in the header. The data is laid out by falling width of the element and then by name,
/// so that every tensor is aligned to its element. `metadata` always gets "format": "pt", which transformers
/// asks for. Throws Error (bad input) for bad declarations; `target` is for messages.
SafetensorsLayout safetensors_layout(const std::filesystem::path& target,
                                     const std::vector<TensorDeclaration>& tensors,
                                     std::map<std::string, std::string> metadata = {});

/// Writes one file, tensor by tensor, into a temporary file in the same folder. commit() puts it in the place
/// of `target` at once; without commit() nothing remains and an existing target is untouched, so that
/// `target` may be the file that the tensors are being read from. A symbolic link is replaced, not followed.
/// For one thread at a time.
class SafetensorsWriter {
 public:
  /// As safetensors_layout() says. `hash`, if any, gets the bytes of the file as they are written; tensors
  /// must then be written in data_order(). Throws Error (bad input) for bad declarations or a target that
  /// cannot be created.
  SafetensorsWriter(const std::filesystem::path& target, const std::vector<TensorDeclaration>& tensors,
                    std::map<std::string, std::string> metadata = {}, Sha256* hash = nullptr);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  /// The names in the order in which their data lies in the file.
  const std::vector<std::string>& data_order() const { return data_order_; }

  /// Each declared tensor exactly once, in any order. Throws Error (failure) if the disk is full.
  void write(std::string_view name, std::span<const std::byte> bytes);

  /// Makes the file durable and visible under its name. Throws Error (failure) if a tensor is missing.
  void commit();

 private:
  struct Slot {
    std::uint64_t begin;  //!< Within the file.
    std::uint64_t bytes;
    bool written;
  };

  std::string target_;                              //!< For messages.
  std::map<std::string, Slot, std::less<>> slots_;  //!< By name.
  std::vector<std::string> data_order_;
  std::unique_ptr<AtomicFile> output_;  //!< Null once commit() was tried.
};

}  // namespace tetrad
