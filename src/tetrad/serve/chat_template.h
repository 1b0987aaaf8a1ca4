// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a conversation becomes the text that a model goes on with. A few named forms, written out here: the
// templates of tokenizer_config.json are programs (Jinja), which nothing here runs.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

struct ChatMessage {
  std::string role;  //!< system, user or assistant
  std::string content;
};

struct ChatTemplate {
  std::string_view name;
  std::string_view begin;        //!< of the text
  std::string_view before_role;  //!< of a message
  std::string_view after_role;
  std::string_view end;      //!< of a message
  std::string_view mark;     //!< what ends the model's turn; no message may have it, nor before_role
  bool capitalizes = false;  //!< the names of roles
};

/// All that there are: chatml, llama3, plain.
std::span<const ChatTemplate> chat_templates();

/// Null if there is none of this name.
const ChatTemplate* find_chat_template(std::string_view name);

/// The form whose marks are tokens of their own to this tokenizer: chatml or llama3. Null if there is none.
const ChatTemplate* chat_template_of(const Tokenizer& tokenizer);

/// The text up to where the assistant speaks. Throws ApiError (400) for a message with marks of the template,
/// which would pretend to be others.
std::string render_chat(const ChatTemplate& form, const std::vector<ChatMessage>& messages);

}  // namespace tetrad
