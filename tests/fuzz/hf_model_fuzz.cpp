// Any text is a config.json of a model that can be counted, or refused.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tetrad/config/hf_model.h"
#include "tetrad/core/error.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const tetrad::ModelConfig model = tetrad::parse_hf_model(text, "fuzz");
    if (model.pattern.empty() || tetrad::parameter_count(model) <= 0) std::abort();
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
  }
  return 0;
}
