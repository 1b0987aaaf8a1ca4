// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/dtype.h"

#include <array>

namespace tetrad {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kTable = {
    Entry{DType::boolean, "BOOL", 8},    Entry{DType::u8, "U8", 8},
    Entry{DType::i8, "I8", 8},           Entry{DType::u16, "U16", 16},
    Entry{DType::i16, "I16", 16},        Entry{DType::u32, "U32", 32},
    Entry{DType::i32, "I32", 32},        Entry{DType::u64, "U64", 64},
    Entry{DType::i64, "I64", 64},        Entry{DType::f4, "F4", 4},
    Entry{DType::f6_e2m3, "F6_E2M3", 6}, Entry{DType::f6_e3m2, "F6_E3M2", 6},
    Entry{DType::f8_e4m3, "F8_E4M3", 8}, Entry{DType::f8_e5m2, "F8_E5M2", 8},
    Entry{DType::f8_e8m0, "F8_E8M0", 8}, Entry{DType::f16, "F16", 16},
    Entry{DType::bf16, "BF16", 16},      Entry{DType::f32, "F32", 32},
    Entry{DType::f64, "F64", 64},        Entry{DType::c64, "C64", 64},
};

constexpr bool table_is_in_enum_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i)
    if (static_cast<std::size_t>(kTable[i].dtype) != i) return false;
  return true;
}
static_assert(table_is_in_enum_order());

}  // namespace

int bits_of(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].bits; }

std::string_view name_of(DType dtype) { return kTable[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Entry& entry : kTable)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

}  // namespace tetrad
