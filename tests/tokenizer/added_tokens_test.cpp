// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/added_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tetrad {
namespace {

/// The parts of `text`: those that are no token as they are, tokens as their ids in brackets.
std::vector<std::string> parts_of(const std::vector<AddedToken>& tokens, std::string_view text) {
  std::vector<std::string> parts;
  AddedTokenFinder(tokens).cut(
      text, [&](std::string_view plain) { parts.emplace_back(plain); },
      [&](std::int32_t id) { parts.push_back(fmt::format("{{{}}}", id)); });
  return parts;
}

using Parts = std::vector<std::string>;

TEST(AddedTokenFinder, TakesTheLeftmostAndOfThoseTheLongest) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<a>"},
                                          {.id = 2, .content = "<a>b"},
                                          {.id = 3, .content = ">bcd"},
                                          {.id = 4, .content = "x"}};
  EXPECT_EQ(parts_of(tokens, "<a>bcd"), (Parts{"{2}", "cd"}));
  EXPECT_EQ(parts_of(tokens, "<a>c<a"), (Parts{"{1}", "c<a"}));
  EXPECT_EQ(parts_of(tokens, "x>bcdx"), (Parts{"{4}", "{3}", "{4}"}));
  EXPECT_EQ(parts_of(tokens, "<<a>"), (Parts{"<", "{1}"}));
  EXPECT_EQ(parts_of(tokens, ""), Parts{});
  EXPECT_EQ(parts_of({}, "text"), Parts{"text"});
}

TEST(AddedTokenFinder, SingleWordsStandAlone) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "foo", .single_word = true},
                                          {.id = 2, .content = "oo"}};
  EXPECT_EQ(parts_of(tokens, "foo"), Parts{"{1}"});
  EXPECT_EQ(parts_of(tokens, "-foo."), (Parts{"-", "{1}", "."}));
  // What does not count hides what lies in it, as in the package.
  for (const char* text : {"foox", "xfoo", "foo_", "foo9", "foo\u0301", "\u6f22foo", "foo\u200d"})
    EXPECT_EQ(parts_of(tokens, text), Parts{text});
  EXPECT_EQ(parts_of(tokens, "foo\u00bd"), (Parts{"{1}", "\u00bd"}));
}

TEST(AddedTokenFinder, StripsTakeWhiteSpaceThatIsStillThere) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "[L]", .lstrip = true},
                                          {.id = 2, .content = "[R]", .rstrip = true}};
  EXPECT_EQ(parts_of(tokens, "a \u2003[L] b"), (Parts{"a", "{1}", " b"}));
  EXPECT_EQ(parts_of(tokens, "a [R] \n\u3000b"), (Parts{"a ", "{2}", "b"}));
  EXPECT_EQ(parts_of(tokens, "[R]  [L]"), (Parts{"{2}", "{1}"}));
  EXPECT_EQ(parts_of(tokens, "  [L]"), Parts{"{1}"});
  EXPECT_EQ(parts_of(tokens, "a\u200b[L]"), (Parts{"a\u200b", "{1}"}));
  // A token of white space is found also in what was stripped, and the text goes on behind it.
  const std::vector<AddedToken> spaces = {{.id = 2, .content = "[R]", .rstrip = true},
                                          {.id = 3, .content = "  "}};
  EXPECT_EQ(parts_of(spaces, "[R]    x"), (Parts{"{2}", "{3}", "{3}", "x"}));
  EXPECT_EQ(parts_of(spaces, "[R]   x"), (Parts{"{2}", "{3}", " x"}));
}

TEST(AddedTokenFinder, LongRunsOfSpacesTakeNoHours) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "  ", .lstrip = true, .rstrip = true}};
  const std::string spaces(1 << 20, ' ');
  // The first takes them all; those that begin in what it took are nothing, as in the package.
  EXPECT_EQ(parts_of(tokens, "a" + spaces + "b"), (Parts{"a", "{1}", "b"}));
}

}  // namespace
}  // namespace tetrad
