// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/run_identity.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr std::size_t kLength = 36;

bool is_hyphen(std::size_t at) { return at == 8 || at == 13 || at == 18 || at == 23; }

[[noreturn]] void refuse(const std::string& message) { throw Error(message, ExitCode::no_checkpoint); }

}  // namespace

std::string new_run_id() {
  std::array<std::uint8_t, 16> bytes{};
  ssize_t count = 0;
  do {
    count = ::getrandom(bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count != std::ssize(bytes)) fail_errno("getrandom");
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0F) | 0x40);  // version 4: random
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3F) | 0x80);  // the variant of the RFC
  std::string id;
  for (const std::uint8_t byte : bytes) {
    if (is_hyphen(id.size())) id += '-';
    id += fmt::format("{:02x}", byte);
  }
  return id;
}

bool is_run_id(const std::string& text) {
  if (text.size() != kLength) return false;
  for (std::size_t i = 0; i < kLength; ++i) {
    const bool is_digit = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (is_hyphen(i) ? text[i] != '-' : !is_digit) return false;
  }
  return true;
}

void check_same_run(const RunIdentity& saved, const RunIdentity& now, const std::string& checkpoint,
                    bool may_add_sources) {
  if (!saved.id.empty() && saved.id != now.id)
    refuse(
        fmt::format("{} is a checkpoint of another run ({}) than this one ({}): move it away; to begin a run "
                    "with its weights, use --from",
                    checkpoint, saved.id, now.id));
  if (saved.data.empty()) return;
  for (const auto& [source, ignored] : now.data)
    if (!may_add_sources && !saved.data.contains(source))
      refuse(fmt::format(
          "the run began without the data source {}: leave it out, or say with --change that it is "
          "to be added",
          source));
  for (const auto& [source, hash] : saved.data) {
    const auto found = now.data.find(source);
    if (found == now.data.end())
      refuse(fmt::format("the run began with the data source {}, which is missing now", source));
    if (found->second != hash)
      refuse(
          fmt::format("the tokens of the data source {} are not those that the run began with (their hash is "
                      "{:.16}, not {:.16}): put the old files back, or give their place with "
                      "data.sources.{}.path=…",
                      source, found->second, hash, source));
  }
}

}  // namespace tetrad
