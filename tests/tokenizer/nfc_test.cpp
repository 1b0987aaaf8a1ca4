// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/nfc.h"

#include <gtest/gtest.h>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {
namespace {

TEST(Nfc, ComposesAsUnicodesExamplesDo) {
  EXPECT_EQ(normalize_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(normalize_nfc("\u212b\u2126"), "\u00c5\u03a9");                    // angstrom, ohm
  EXPECT_EQ(normalize_nfc("\u1e0b\u0323"), "\u1e0d\u0307");                    // the dot below goes first
  EXPECT_EQ(normalize_nfc("q\u0307\u0323"), "q\u0323\u0307");                  // ordered, not composed
  EXPECT_EQ(normalize_nfc("a\u0315\u0300"), "\u00e0\u0315");                   // past a higher class
  EXPECT_EQ(normalize_nfc("a\u0300\u0301\u0300"), "\u00e0\u0301\u0300");       // not past an equal one
  EXPECT_EQ(normalize_nfc("o\u0302\u0301"), "\u1ed1");                         // twice
  EXPECT_EQ(normalize_nfc("\u0344"), "\u0308\u0301");                          // marks alone stay marks
  EXPECT_EQ(normalize_nfc("\u0958\u0915\u093c"), "\u0915\u093c\u0915\u093c");  // excluded from composition
  EXPECT_EQ(normalize_nfc("\uf900\U0002f800"), "\u8c48\u4e3d");                // compatibility ideographs
  EXPECT_EQ(normalize_nfc("\U0001d15e"), "\U0001d157\U0001d165");              // musical symbols
  EXPECT_EQ(normalize_nfc("\ufb01\u00bd\u2460"), "\ufb01\u00bd\u2460");        // that would be NFKC
  EXPECT_EQ(normalize_nfc("\u0301e a\u0301"), "\u0301e \u00e1");               // nothing before the mark
  EXPECT_EQ(normalize_nfc("\u09c7\u09be\u09c7\u0301\u09be"), "\u09cb\u09c7\u0301\u09be");  // two starters
}

TEST(Nfc, ComputesKoreanSyllables) {
  EXPECT_EQ(normalize_nfc("\u1112\u1161\u11ab\u1100\u1173\u11af"), "\ud55c\uae00");
  EXPECT_EQ(normalize_nfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(normalize_nfc("\uac01\u11a8"), "\uac01\u11a8");  // it has a tail already
  EXPECT_EQ(normalize_nfc("\u1100\u11a8"), "\u1100\u11a8");
  EXPECT_EQ(normalize_nfc("\uac00\u11a7"), "\uac00\u11a7");  // no tail
}

TEST(Nfc, LeavesBytesThatAreNotUtf8) {
  EXPECT_EQ(normalize_nfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(normalize_nfc("e\u0301\xCC"), "\u00e9\xCC");
  EXPECT_EQ(normalize_nfc("\xED\xA0\x80\u1112\u1161"), "\xED\xA0\x80\ud558");  // a surrogate
  EXPECT_EQ(normalize_nfc(std::string_view("\0e\u0301", 4)), std::string_view("\0\u00e9", 3));
  EXPECT_EQ(normalize_nfc(""), "");
}

TEST(Nfc, WhatIsNormalizedStaysSo) {
  for (char32_t point = 1; point < 0x30000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text = "a";
    append_utf8(text, point);
    text += "\u0323\u0301";
    const std::string once = normalize_nfc(text);
    ASSERT_EQ(normalize_nfc(once), once) << static_cast<std::uint32_t>(point);
  }
}

TEST(Nfc, LongRunsOfMarksTakeNoHours) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string normalized = normalize_nfc(text);
  EXPECT_TRUE(normalized.starts_with("\u1ea1\u0323\u0323"));
  EXPECT_TRUE(normalized.ends_with("\u0301\u0301"));
}

}  // namespace
}  // namespace tetrad
