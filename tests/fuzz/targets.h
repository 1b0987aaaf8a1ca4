// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parsers of what comes from outside, each as a function over any bytes at all.

#include <cstdlib>
#include <span>
#include <string_view>

#include "tetrad/core/error.h"

namespace tetrad::testing {

struct FuzzTarget {
  std::string_view name;  //!< its seeds are in corpus/NAME
  void (*run)(std::string_view bytes);
};

/// All of them, by name.
std::span<const FuzzTarget> fuzz_targets();

/// What must hold whatever the bytes are; fuzzers notice a program that ends.
inline void require(bool holds) {
  if (!holds) std::abort();
}

/// `read` succeeds, or throws Error (bad input).
template <typename Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    require(error.exit_code() == ExitCode::bad_input);
  }
}

void fuzz_completion_request(std::string_view bytes);
void fuzz_config(std::string_view bytes);
void fuzz_gguf(std::string_view bytes);
void fuzz_hf_model(std::string_view bytes);
void fuzz_http_request(std::string_view bytes);
void fuzz_manifest(std::string_view bytes);
void fuzz_safetensors_header(std::string_view bytes);
void fuzz_strict_json(std::string_view bytes);
void fuzz_tiktoken(std::string_view bytes);
void fuzz_token_file(std::string_view bytes);
void fuzz_tokenizer(std::string_view bytes);
void fuzz_tokenizer_json(std::string_view bytes);

}  // namespace tetrad::testing
