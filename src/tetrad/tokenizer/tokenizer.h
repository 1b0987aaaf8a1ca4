// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to token ids and back.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad {

/// Any bytes can be encoded, and decode(encode(bytes)) == bytes, except where a tokenizer.json asks for
/// something else (a space in front, added tokens that take white space). Bytes that are not UTF-8, which the
/// `tokenizers` package would not take, count as symbols, each on its own, and are kept. May be used by
/// several threads at once.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// Bytes, which need not be UTF-8 if a character was cut: replace_invalid_utf8() is for showing them.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// All ids are below it.
  virtual std::int32_t vocab() const = 0;

  /// The token that stands between documents, if there is one.
  virtual std::optional<std::int32_t> end_of_document() const = 0;

  /// What the tokenizer's template puts before and behind a text where special tokens are asked for, such as
  /// <|begin_of_text|>. encode() adds neither.
  virtual std::span<const std::int32_t> prefix() const { return {}; }
  virtual std::span<const std::int32_t> suffix() const { return {}; }

  /// Whether the id is a mark rather than text.
  virtual bool is_special(std::int32_t) const { return false; }

  virtual std::string description() const = 0;  //!< for people

  /// 16 hexadecimal digits that stand for everything that decides how a text is encoded.
  virtual std::string hash() const = 0;

  /// A place at or after `at_least` where `text` can be cut so that the two parts encode to what the whole
  /// encodes to; text.size() if there is none.
  virtual std::size_t cut(std::string_view text, std::size_t at_least) const = 0;
};

/// Every byte is its own token. Documents are separated by byte 0, which no text has.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kVocab = 256;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;  //!< U+FFFD for ids that are no byte
  std::int32_t vocab() const override { return kVocab; }
  std::optional<std::int32_t> end_of_document() const override { return 0; }
  std::string description() const override { return "bytes"; }
  std::string hash() const override;
  std::size_t cut(std::string_view text, std::size_t at_least) const override;
};

/// "bytes", the path of a tokenizer.json, or a tiktoken file (see tiktoken.h). Throws Error (bad input).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec);

/// The same with its path taken from `folder` if it is relative.
std::string tokenizer_in_folder(const std::string& spec, const std::filesystem::path& folder);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  //!< U+FFFD

}  // namespace tetrad
