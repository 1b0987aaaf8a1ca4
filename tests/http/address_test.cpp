// SPDX-License-Identifier: Apache-2.0
#include "tetrad/http/address.h"

#include <gtest/gtest.h>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

TEST(Address, IsHostAndPortOrPortAlone) {
  const auto is = [](const char* text, const char* host, int port) {
    const HttpAddress address = parse_address(text, "key");
    EXPECT_EQ(address.host, host) << text;
    EXPECT_EQ(address.port, port) << text;
  };
  is("9464", "127.0.0.1", 9464);
  is("0", "127.0.0.1", 0);
  is("0.0.0.0:9464", "0.0.0.0", 9464);
  is("localhost:65535", "localhost", 65535);
  is("[::1]:80", "::1", 80);
}

TEST(Address, RefusesAnythingElse) {
  for (const char* text :
       {"", ":9464", "9464:", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "65536", "-1",
        "+1", "a:1:2", "::1:80", "[::1]", "[::1:80", "[]:80", "[::1]80", " 9464"}) {
    try {
      parse_address(text, "key");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("key is")) << error.what();
    }
  }
}

TEST(Address, KnowsNamesOfThisMachine) {
  for (const char* host : {"localhost", "LocalHost:8000", "a.localhost", "127.0.0.1", "127.1.2.3:1", "[::1]",
                           "[::1]:80", "[0:0:0:0:0:0:0:1]"})
    EXPECT_TRUE(names_loopback(host)) << host;
  for (const char* host : {"", ":80", "localhost:", "localhost:x", "evil.example", "localhost.evil.example",
                           "xlocalhost", "127.0.0.1.evil.example", "127.1", "0.0.0.0", "192.168.0.1", "[::]",
                           "[::1", "::1", "[127.0.0.1]", "[::ffff:1.2.3.4]", "localhost:80:80"})
    EXPECT_FALSE(names_loopback(host)) << host;
}

TEST(HostHeader, NumbersAreNoNames) {
  for (const char* host : {"10.0.0.7", "10.0.0.7:8000", "[fe80::1]", "[::1]:80"})
    EXPECT_TRUE(names_number(host)) << host;
  for (const char* host : {"", "localhost", "10.0.0.7.example", "10.0.0.7:x", "::1", "1.2.3"})
    EXPECT_FALSE(names_number(host)) << host;
}

TEST(HostHeader, NamesAreComparedWithoutPortAndCase) {
  EXPECT_TRUE(names_host("GPU.example:8000", "gpu.Example"));
  EXPECT_TRUE(names_host("gpu.example", "gpu.example"));
  EXPECT_FALSE(names_host("evil.gpu.example", "gpu.example"));
  EXPECT_FALSE(names_host("gpu.example:x", "gpu.example"));
  EXPECT_FALSE(names_host("", ""));
}

}  // namespace
}  // namespace tetrad
