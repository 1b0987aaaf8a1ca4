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

std::vector<std::vector<double>> dealt_lists(
    Communicator& ranks, std::int64_t count,
    const std::function<std::vector<double>(std::int64_t)>& compute) {
  std::string own;  // for each of its numbers the length of a list, and the bytes of that
  const auto append = [&own](const void* from, std::size_t bytes) {
    own.append(static_cast<const char*>(from), bytes);
  };
  together(ranks, [&] {
    for (std::int64_t i = ranks.rank(); i < count; i += ranks.size()) {
      const std::vector<double> list = compute(i);
      const std::uint64_t length = list.size();
      append(&length, sizeof(length));
      append(list.data(), length * sizeof(double));
    }
  });
  const std::vector<std::string> all = ranks.share(own);
  std::vector<const char*> next;
  for (const std::string& one : all) next.push_back(one.data());
  const auto take = [](const char*& from, void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    from += bytes;
  };
  std::vector<std::vector<double>> lists(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const char*& from = next[static_cast<std::size_t>(i % ranks.size())];
    std::uint64_t length = 0;
    take(from, &length, sizeof(length));
    std::vector<double>& list = lists[static_cast<std::size_t>(i)];
    list.resize(length);
    take(from, list.data(), length * sizeof(double));
  }
  return lists;
}

std::vector<double> dealt(Communicator& ranks, std::int64_t count,
                          const std::function<double(std::int64_t)>& compute) {
  const std::int64_t size = ranks.size();
  const auto lists = dealt_lists(ranks, (count + size - 1) / size * size, [&](std::int64_t i) {
    return std::vector<double>{compute(std::min(i, count - 1))};
  });
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(lists[static_cast<std::size_t>(i)][0]);
  return values;
}

}  // namespace tetrad
