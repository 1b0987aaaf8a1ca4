// SPDX-License-Identifier: Apache-2.0
#include "fuzz/targets.h"

namespace tetrad::testing {
namespace {

constexpr FuzzTarget kTargets[] = {
    {"completion_request", fuzz_completion_request},
    {"config", fuzz_config},
    {"gguf", fuzz_gguf},
    {"hf_model", fuzz_hf_model},
    {"http_request", fuzz_http_request},
    {"manifest", fuzz_manifest},
    {"safetensors_header", fuzz_safetensors_header},
    {"strict_json", fuzz_strict_json},
    {"tiktoken", fuzz_tiktoken},
    {"token_file", fuzz_token_file},
    {"tokenizer", fuzz_tokenizer},
    {"tokenizer_json", fuzz_tokenizer_json},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

}  // namespace tetrad::testing
