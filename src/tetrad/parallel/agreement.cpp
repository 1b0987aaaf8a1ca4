// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/agreement.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tetrad {

void together(Communicator& ranks, const std::function<void()>& work) {
  std::string outcome;  // "CODE MESSAGE"; empty: nothing is wrong
  try {
    work();
  } catch (const Error& error) {
    outcome = fmt::format("{} {}", static_cast<int>(error.exit_code()), error.what());
  }
  const std::vector<std::string> outcomes = ranks.share(outcome);
  const auto failed = std::ranges::find_if(outcomes, [](const std::string& one) { return !one.empty(); });
  if (failed == outcomes.end()) return;
  int code = 0;
  const char* end = std::from_chars(failed->data(), failed->data() + failed->size(), code).ptr;
  const std::string message(end + 1, failed->data() + failed->size());
  const auto rank = failed - outcomes.begin();
  throw SharedError(rank == 0 ? message : fmt::format("rank {}: {}", rank, message),
                    static_cast<ExitCode>(code));
}

void on_first(Communicator& ranks, const std::function<void()>& work) {
  together(ranks, [&] {
    if (ranks.rank() == 0) work();
  });
}

bool on_any(Communicator& ranks, bool here) {
  const std::vector<std::string> all = ranks.share(here ? "1" : "");
  return std::ranges::any_of(all, [](const std::string& one) { return !one.empty(); });
}

std::string from_first(Communicator& ranks, const std::string& text) {
  return ranks.share(ranks.rank() == 0 ? text : std::string()).front();
}

std::vector<double> dealt(Communicator& ranks, std::int64_t count,
                          const std::function<double(std::int64_t)>& compute) {
  std::vector<double> values(static_cast<std::size_t>(count));
  const auto at = [](auto& all, std::int64_t i) -> auto& { return all[static_cast<std::size_t>(i)]; };
  std::string own;  // the bytes of its values
  for (std::int64_t first = 0; first < count; first += ranks.size()) {
    const double value = compute(std::min(first + ranks.rank(), count - 1));
    own.append(reinterpret_cast<const char*>(&value), sizeof(double));
  }
  const std::vector<std::string> all = ranks.share(own);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(i / ranks.size()) * sizeof(double);
    std::memcpy(&at(values, i), at(all, i % ranks.size()).data() + place, sizeof(double));
  }
  return values;
}

}  // namespace tetrad
