// SPDX-License-Identifier: Apache-2.0
#pragma once
// A completion that is sent while it grows, as server-sent events. All texts of a choice, one after the
// other, are the text of the response that comes as a whole: no event ends within a character, and what may
// be the beginning of a stop string waits until that is known.

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/serve/completions.h"

namespace tetrad {

class CompletionStream {
 public:
  using Write = std::function<void(std::string_view event)>;

  /// `frame`: the members that every event has. All arguments must outlive it.
  CompletionStream(const CompletionRequest& request, const CompletionContext& context,
                   const nlohmann::json& frame, const Write& write);
  CompletionStream(const CompletionStream&) = delete;
  CompletionStream& operator=(const CompletionStream&) = delete;
  ~CompletionStream();

  /// What is new of choice `index`.
  void add(std::size_t index, const Generation& news, bool is_done);
  /// Says that there was an error.
  void fail(const nlohmann::json& error);
  /// Usage, if it was asked for, and the mark of the end.
  void finish();

  std::size_t completion_tokens() const { return completion_tokens_; }

 private:
  struct Choice;

  void begin(Choice& choice, std::size_t index, const Generation& news);
  std::string take_text(Choice& choice, const Generation& news, bool is_done) const;
  static nlohmann::json delta(Choice& choice, std::string text);
  void send(nlohmann::json event);

  const CompletionRequest& request_;
  const CompletionContext& context_;
  const nlohmann::json& frame_;
  const Write& write_;
  std::vector<Choice> choices_;
  bool has_sent_ = false;
  std::size_t completion_tokens_ = 0;
};

/// Bytes at the beginning of the text that may be sent before the rest of it is known.
std::size_t sendable(std::string_view text, std::size_t generated_from, const std::vector<std::string>& stop);

}  // namespace tetrad
