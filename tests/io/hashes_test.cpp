// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/files.h"
#include "tetrad/io/crc32c.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

using testing::bytes_of;

// FIPS 180-4's examples and NIST's long one.
TEST(Sha256, GivesThePublishedHashes) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(bytes_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                                "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu")),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t length = 0; length <= text.size(); length += 5) {
    const auto bytes = bytes_of(text).first(length);
    const std::string whole = sha256_hex(bytes);
    for (std::size_t cut = 0; cut <= length; ++cut) {
      Sha256 hash;
      hash.update(bytes.first(cut));
      hash.hex();  // Looking does not disturb.
      hash.update(bytes.subspan(cut));
      ASSERT_EQ(hash.hex(), whole) << length << " cut at " << cut;
      ASSERT_EQ(hash.size(), length);
    }
  }
}

// The lengths around a block's end decide how the padding falls; hash of the hashes, from coreutils'
// sha256sum.
TEST(Sha256, PadsEveryLengthRight) {
  std::string all;
  for (std::size_t length = 0; length < 130; ++length)
    all += sha256_hex(bytes_of(std::string(length, 'x'))) + "\n";
  EXPECT_EQ(sha256_hex(bytes_of(all)), "54e636193da61eccb0a481761cc00c6271ddc587c6348626d767d7a6af984080");
}

// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST(Crc32c, GivesThePublishedValues) {
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xFF'))), 0x62A8AB43U);
  EXPECT_EQ(crc32c(bytes_of(rising)), 0x46DD794EU);
}

}  // namespace
}  // namespace tetrad
