// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/gguf_writer.h"

#include <cstring>
#include <type_traits>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

class Composer {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto at = text_.size();
    text_.resize(at + sizeof(T));
    std::memcpy(text_.data() + at, &value, sizeof(T));
  }
  void string(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  void raw(std::string_view value) { text_ += value; }

  void value(const GgufValue& value) {
    std::visit([this](const auto& v) { put(v); }, value);
  }

  std::string take() { return std::move(text_); }
  std::size_t size() const { return text_.size(); }

 private:
  void put(std::uint32_t v) { number(GgufKind::u32), number(v); }
  void put(std::int32_t v) { number(GgufKind::i32), number(v); }
  void put(float v) { number(GgufKind::f32), number(v); }
  void put(bool v) { number(GgufKind::flag), number(static_cast<std::uint8_t>(v)); }
  void put(const std::string& v) { number(GgufKind::text), string(v); }
  void put(const std::vector<std::string>& v) {
    number(GgufKind::list), number(GgufKind::text), number(static_cast<std::uint64_t>(v.size()));
    for (const std::string& item : v) string(item);
  }
  void put(const std::vector<std::int32_t>& v) {
    number(GgufKind::list), number(GgufKind::i32), number(static_cast<std::uint64_t>(v.size()));
    for (const std::int32_t item : v) number(item);
  }

  std::string text_;
};

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& target, const GgufMetadata& metadata,
                       const std::vector<GgufTensor>& tensors)
    : file_(target) {
  Composer header;
  header.raw(kGgufMagic);
  header.number(kGgufVersion);
  header.number(static_cast<std::uint64_t>(tensors.size()));
  header.number(static_cast<std::uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    header.string(key);
    header.value(value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    const std::vector<std::int64_t> fastest_first(tensor.shape.rbegin(), tensor.shape.rend());
    for (const std::int64_t extent : fastest_first) header.number(static_cast<std::uint64_t>(extent));
    header.number(static_cast<std::uint32_t>(tensor.type));
    header.number(offset);
    const std::uint64_t bytes = gguf_tensor_bytes("export", tensor);
    slots_[tensor.name] = {offset, bytes, false};
    offset = gguf_aligned(offset + bytes);
  }
  const std::uint64_t data_begin = gguf_aligned(header.size());
  std::string text = header.take();
  text.resize(data_begin, '\0');
  file_.write_at(0, std::as_bytes(std::span(text)));
  end_ = data_begin + offset;
  for (auto& [name, slot] : slots_) slot.begin += data_begin;
}

void GgufWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto found = slots_.find(name);
  if (found == slots_.end() || found->second.written || found->second.bytes != bytes.size())
    throw Error(fmt::format("tensor {} is not as it was declared; this is a bug of the caller", name),
                ExitCode::failure);
  Slot& slot = found->second;
  file_.write_at(slot.begin, bytes);
  // The gap behind it is part of the file.
  constexpr std::byte kZeros[kGgufAlignment] = {};
  file_.write_at(slot.begin + slot.bytes,
                 std::span(kZeros).first(gguf_aligned(slot.begin + slot.bytes) - slot.begin - slot.bytes));
  slot.written = true;
}

void GgufWriter::commit() {
  for (const auto& [name, slot] : slots_)
    if (!slot.written)
      throw Error(fmt::format("tensor {} was not written; this is a bug of the caller", name),
                  ExitCode::failure);
  file_.commit();
}

}  // namespace tetrad
