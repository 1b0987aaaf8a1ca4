// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks.h"
#include "tetrad/tokenizer/split.h"

namespace tetrad::bench {
namespace {

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void tokenizer(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int repeats,
               const Report& report) {
  std::vector<std::vector<std::int32_t>> ids(texts.size());
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  volatile std::size_t sum = 0;  // keeps the compiler from leaving work out
  const auto encode = [&] {
    for (std::size_t i = 0; i < texts.size(); ++i) ids[i] = tokenizer.encode(texts[i]);
  };
  const auto decode = [&] {
    for (const auto& list : ids) sum = tokenizer.decode(list).size();
  };
  const auto split = [&] {
    for (const std::string& text : texts) {
      std::size_t begin = 0;
      while (begin < text.size()) begin = gpt2_split().next(text, begin);
      sum = begin;
    }
  };
  const auto copy = [&] {
    for (const std::string& text : texts) sum = std::string(text).size();
  };
  std::vector<double> encode_times;
  std::vector<double> decode_times;
  std::vector<double> split_times;
  std::vector<double> copy_times;
  const std::vector<double> first_time = {seconds(encode)};  // no word was met before; also warms up
  for (int i = 0; i < repeats; ++i) {
    encode_times.push_back(seconds(encode));
    split_times.push_back(seconds(split));
    decode_times.push_back(seconds(decode));
    copy_times.push_back(seconds(copy));
  }
  const auto rate = [&](const std::vector<double>& times) {
    return static_cast<double>(bytes) * 1e-6 / median(times);
  };
  const std::string what =
      fmt::format("{:.1f} MB, {}", static_cast<double>(bytes) * 1e-6, tokenizer.description());
  report({"encode " + what, "MB/s", rate(first_time), rate(split_times), "splitting alone (gpt2)"});
  report({"encode it again", "MB/s", rate(encode_times), rate(split_times), "splitting alone (gpt2)"});
  report({"decode the same", "MB/s", rate(decode_times), rate(copy_times), "a copy of the text"});
}

}  // namespace tetrad::bench
