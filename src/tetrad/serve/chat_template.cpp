// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tetrad/serve/request_members.h"

namespace tetrad {
namespace {

constexpr std::array<ChatTemplate, 3> kChatTemplates = {
    ChatTemplate{.name = "chatml",
                 .begin = "",
                 .before_role = "<|im_start|>",
                 .after_role = "\n",
                 .end = "<|im_end|>\n",
                 .mark = "<|im_end|>"},
    ChatTemplate{.name = "llama3",
                 .begin = "<|begin_of_text|>",
                 .before_role = "<|start_header_id|>",
                 .after_role = "<|end_header_id|>\n\n",
                 .end = "<|eot_id|>",
                 .mark = "<|eot_id|>"},
    ChatTemplate{.name = "plain",
                 .begin = "",
                 .before_role = "",
                 .after_role = ": ",
                 .end = "\n\n",
                 .mark = "\n\nUser:",
                 .capitalizes = true},
};

std::string role_in(const ChatTemplate& form, std::string role) {
  if (form.capitalizes) role[0] = static_cast<char>(role[0] - 'a' + 'A');
  return role;
}

std::string_view without_space_at_the_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

}  // namespace

std::span<const ChatTemplate> chat_templates() { return kChatTemplates; }

const ChatTemplate* find_chat_template(std::string_view name) {
  const auto* const found = std::ranges::find(kChatTemplates, name, &ChatTemplate::name);
  return found == kChatTemplates.end() ? nullptr : found;
}

const ChatTemplate* chat_template_of(const Tokenizer& tokenizer) {
  const auto is_token = [&](std::string_view mark) {
    const std::vector<std::int32_t> ids = tokenizer.encode(mark);
    return ids.size() == 1 && tokenizer.is_special(ids.front());
  };
  const auto* const found = std::ranges::find_if(kChatTemplates, [&](const ChatTemplate& form) {
    return is_token(form.before_role) && is_token(form.mark);
  });
  return found == kChatTemplates.end() ? nullptr : found;
}

std::string render_chat(const ChatTemplate& form, const std::vector<ChatMessage>& messages) {
  std::string text(form.begin);
  for (const ChatMessage& message : messages) {
    for (const std::string_view mark : {form.mark, form.before_role})
      if (!mark.empty() && message.content.find(mark) != std::string::npos)
        refuse_parameter("messages",
                         fmt::format("a message has {:?}, which stands between messages here", mark));
    text += fmt::format("{}{}{}{}{}", form.before_role, role_in(form, message.role), form.after_role,
                        message.content, form.end);
  }
  // Models write the space before a word themselves.
  return text + fmt::format("{}{}{}", form.before_role, role_in(form, "assistant"),
                            without_space_at_the_end(form.after_role));
}

}  // namespace tetrad
