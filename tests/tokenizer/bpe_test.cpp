// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <string>

#include "support/errors.h"
#include "tetrad/core/threads.h"
#include "tetrad/tokenizer/bpe_trainer.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using Ids = std::vector<std::int32_t>;

const std::string sample_text =
    "the cat sat on the mat. The cat's hat is the best hat; that's that. It isn't there, they've gone!\n"
    "    for (int i = 0; i < 10; ++i) total += values[i];  // héllo wörld 漢字\n";

BpeDefinition small_definition(std::int64_t vocab = 300) {
  const std::string_view text = sample_text;
  return train_bpe({&text, 1}, vocab);
}

std::string random_bytes(std::mt19937& random, std::size_t size) {
  std::string bytes(size, '\0');
  std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
  return bytes;
}

TEST(ByteTokenizer, IsBytes) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.encode("A\xFF"), (Ids{65, 255}));
  EXPECT_EQ(tokenizer.decode(Ids{72, 105}), "Hi");
  EXPECT_EQ(tokenizer.decode(Ids{-1, 256}), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(tokenizer.end_of_document(), 0);
  EXPECT_EQ(tokenizer.hash().size(), 16U);
}

// "aaabdaaabac" is the textbook example; with the split it is one word.
TEST(BpeTrainer, JoinsTheMostFrequentPairFirst) {
  const std::string_view text = "aaabdaaabac aaabdaaabac";
  const BpeDefinition definition = train_bpe({&text, 1}, 300);
  ASSERT_GE(definition.merges.size(), 2U);
  EXPECT_EQ(definition.merges[0], (std::pair<std::int32_t, std::int32_t>('a', 'a')));
  EXPECT_EQ(definition.tokens[256], "aa");
  // "aab" and "aaab": (aa, a) and (a, b) are equally frequent, so the smaller ids go first.
  EXPECT_EQ(definition.merges[1], (std::pair<std::int32_t, std::int32_t>('a', 'b')));
}

/// Counts all pairs anew for every merge.
std::vector<std::pair<std::int32_t, std::int32_t>> slow_merges(std::string_view text, std::size_t count) {
  std::vector<Ids> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = gpt2_split().next(text, begin);
    Ids& word = words.emplace_back();
    for (const char c : text.substr(begin, end - begin)) word.push_back(static_cast<std::uint8_t>(c));
    begin = end;
  }
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  while (merges.size() < count) {
    std::map<std::pair<std::int32_t, std::int32_t>, int> counts;
    for (const Ids& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    const auto best = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    if (best == counts.end() || best->second < 2) break;
    const auto pair = best->first;
    std::string joined =
        tokens[static_cast<std::size_t>(pair.first)] + tokens[static_cast<std::size_t>(pair.second)];
    const auto known = std::ranges::find(tokens, joined);
    const auto id = static_cast<std::int32_t>(known - tokens.begin());
    if (known == tokens.end()) tokens.push_back(joined);
    if (std::ranges::find(merges, pair) == merges.end()) merges.push_back(pair);
    for (Ids& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == pair.first && word[i + 1] == pair.second) {
          word[i] = id;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return merges;
}

TEST(BpeTrainer, EqualsCountingAnewForEveryMerge) {
  std::mt19937 random(3);
  for (const int letters : {1, 2, 3, 6}) {
    std::string text;
    for (int i = 0; i < 3000; ++i)
      text += random() % 6 == 0 ? ' ' : static_cast<char>('a' + random() % static_cast<unsigned>(letters));
    const std::string_view view = text;
    const BpeDefinition definition = train_bpe({&view, 1}, 356);
    const auto expected = slow_merges(text, definition.merges.size());
    EXPECT_EQ(definition.merges, expected) << letters;
    EXPECT_GT(definition.merges.size(), letters == 1 ? 3U : 60U);
  }
}

TEST(BpeTrainer, IsDeterministicAndDoesNotDependOnTheOrderOfTexts) {
  const std::vector<std::string_view> texts = {sample_text, "another text, another cat",
                                               "and 1234 numbers 1234"};
  std::vector<std::string_view> reversed(texts.rbegin(), texts.rend());
  const BpeTokenizer a(train_bpe(texts, 270));
  const BpeTokenizer b(train_bpe(reversed, 270));
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_NE(a.hash(), BpeTokenizer(train_bpe(texts, 269)).hash());
}

TEST(BpeTrainer, StopsWhenNothingOccursTwice) {
  const std::string_view text = "abcabc";
  const BpeDefinition definition = train_bpe({&text, 1}, 5000);
  EXPECT_LT(definition.tokens.size(), 262U);
  EXPECT_EQ(definition.tokens.back(), kEndOfText);
  expect_bad_input([&] { train_bpe({&text, 1}, 256); }, {"256", "257"});
  expect_bad_input([&] { train_bpe({&text, 1}, -5); }, {"-5"});
}

TEST(BpeTokenizer, IsLosslessForAnyBytes) {
  const BpeTokenizer tokenizer(small_definition());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(sample_text)), sample_text);
  EXPECT_LT(tokenizer.encode(sample_text).size(), sample_text.size() * 7 / 10);
  std::mt19937 random(1);
  for (std::size_t size = 0; size < 600; size += 7) {
    const std::string bytes = random_bytes(random, size);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  }
  EXPECT_EQ(tokenizer.decode(Ids{-1, 'a', 1 << 20}), "a");
}

TEST(BpeTokenizer, EncodesAsTrainingJoined) {
  const BpeTokenizer tokenizer(small_definition());
  // Merging by hand, lowest rank first, leftmost first.
  const auto& merges = tokenizer.definition().merges;
  const auto by_hand = [&](std::string_view word) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (const auto& [left, right] : merges)
      for (std::size_t i = 0; i + 1 < parts.size(); ++i)
        if (parts[i] == tokenizer.decode(Ids{left}) && parts[i + 1] == tokenizer.decode(Ids{right})) {
          parts[i] += parts[i + 1];
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
    return parts;
  };
  for (const std::string word : {" the", "that", " hat", "hathathathat", "catcatcat", "isn", "tttttt"}) {
    std::vector<std::string> parts;
    for (const std::int32_t id : tokenizer.encode(word)) parts.push_back(tokenizer.decode(Ids{id}));
    EXPECT_EQ(parts, by_hand(word)) << word;
  }
}

TEST(BpeTokenizer, LongRunsAreFastAndEqualToShortOnes) {
  const std::string_view text = "abababab abab aaaa aaaa bbbb abba";
  const BpeTokenizer tokenizer(train_bpe({&text, 1}, 290));
  const auto begin = std::chrono::steady_clock::now();
  const std::string run(1 << 20, 'a');
  const Ids ids = tokenizer.encode(run);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(tokenizer.decode(ids), run);
  // A run of 128 letters takes the short way, one of 256 the long one.
  std::mt19937 random(5);
  std::string word(1024, 'a');
  for (char& c : word) c = random() % 2 == 0 ? 'a' : 'b';
  MergeTable table(tokenizer.definition().merges.size());
  for (std::size_t rank = 0; rank < tokenizer.definition().merges.size(); ++rank) {
    const auto [left, right] = tokenizer.definition().merges[rank];
    const std::string joined = tokenizer.decode(Ids{left, right});
    const auto found = std::ranges::find(tokenizer.definition().tokens, joined);
    table.insert(left, right,
                 {static_cast<std::uint32_t>(rank),
                  static_cast<std::int32_t>(found - tokenizer.definition().tokens.begin())});
  }
  Ids long_way(word.begin(), word.end());
  Ids slow = long_way;
  table.apply(long_way);
  for (;;) {  // the definition, without any cleverness
    std::size_t best = slow.size();
    MergeTable::Merge merge;
    for (std::size_t i = 0; i + 1 < slow.size(); ++i)
      if (const auto found = table.find(slow[i], slow[i + 1]); found.rank < merge.rank) {
        merge = found;
        best = i;
      }
    if (best == slow.size()) break;
    slow[best] = merge.result;
    slow.erase(slow.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  EXPECT_EQ(long_way, slow);
}

TEST(BpeTokenizer, AddedTokensAreCutOutFirst) {
  const BpeTokenizer tokenizer(small_definition());
  const std::int32_t end = *tokenizer.end_of_document();
  EXPECT_EQ(end, tokenizer.vocab() - 1);
  Ids expected = tokenizer.encode("the cat");
  expected.push_back(end);
  const Ids rest = tokenizer.encode(" sat");
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokenizer.encode("the cat<|endoftext|> sat"), expected);
  EXPECT_EQ(tokenizer.decode(expected), "the cat<|endoftext|> sat");
  EXPECT_GT(tokenizer.encode("<|endoftext|").size(), 1U);
}

TEST(BpeTokenizer, PiecesAtCutsEncodeToTheWhole) {
  const BpeTokenizer tokenizer(small_definition());
  std::string text;
  for (int i = 0; i < 20; ++i) text += sample_text;
  const Ids whole = tokenizer.encode(text);
  for (const std::size_t piece : {1U, 10U, 100U, 1000U}) {
    Ids ids;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t cut = tokenizer.cut(rest, piece);
      const Ids part = tokenizer.encode(rest.substr(0, cut));
      ids.insert(ids.end(), part.begin(), part.end());
      rest.remove_prefix(cut);
    }
    EXPECT_EQ(ids, whole) << piece;
  }
}

TEST(BpeTokenizer, SeveralThreadsMayEncodeAtOnce) {
  const BpeTokenizer tokenizer(small_definition());
  const Ids expected = tokenizer.encode(sample_text);
  std::vector<Ids> results(64);
  Threads threads(4);
  threads.parallel_for(
      64, [&](std::int64_t i) { results[static_cast<std::size_t>(i)] = tokenizer.encode(sample_text); });
  for (const Ids& ids : results) EXPECT_EQ(ids, expected);
}

BpeDefinition with_splits(std::vector<const Split*> splits, bool add_prefix_space = false) {
  BpeDefinition definition = small_definition();
  definition.splits = std::move(splits);
  definition.add_prefix_space = add_prefix_space;
  return definition;
}

TEST(BpeTokenizer, EverySplitIsLosslessAndHasAHashOfItsOwn) {
  std::set<std::string> hashes;
  std::mt19937 random(9);
  std::vector<std::vector<const Split*>> all = {
      {&whole_split()}, {&digit_split()}, {&number_split()}, {&digit_split(), &gpt2_split()}};
  for (const Split& split : regex_splits()) all.push_back({&split});
  for (const auto& splits : all) {
    const BpeTokenizer tokenizer(with_splits(splits));
    EXPECT_TRUE(hashes.insert(tokenizer.hash()).second) << tokenizer.description();
    for (int i = 0; i < 50; ++i) {
      const std::string bytes = random_bytes(random, 100) + sample_text;
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes) << tokenizer.description();
      const std::size_t cut = tokenizer.cut(bytes, 60);
      Ids parts = tokenizer.encode(bytes.substr(0, cut));
      const Ids rest = tokenizer.encode(bytes.substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, tokenizer.encode(bytes)) << tokenizer.description();
    }
  }
  EXPECT_TRUE(hashes.insert(BpeTokenizer(with_splits({&gpt2_split()}, true)).hash()).second);
}

TEST(BpeTokenizer, APrefixSpaceGoesInFrontOfEveryTextThatHasNone) {
  const BpeTokenizer plain(small_definition());
  const BpeTokenizer spaced(with_splits({&gpt2_split()}, true));
  EXPECT_EQ(spaced.encode("the cat"), plain.encode(" the cat"));
  EXPECT_EQ(spaced.encode(" the cat"), plain.encode(" the cat"));
  EXPECT_EQ(spaced.encode("\nthe"), plain.encode(" \nthe"));
  EXPECT_EQ(spaced.encode("the<|endoftext|>cat"), plain.encode(" the<|endoftext|> cat"));
  EXPECT_EQ(spaced.encode(""), Ids{});
  EXPECT_EQ(spaced.cut("the cat sat", 1), 11U);  // a part would get a space of its own
}

TEST(BpeTokenizer, AddedTokensDecodeAsTheirReadersDecodeThem) {
  BpeDefinition definition = small_definition();
  const auto first = static_cast<std::int32_t>(definition.tokens.size());
  definition.tokens.resize(definition.tokens.size() + 3);
  definition.added.push_back({.id = first, .content = "two words", .special = false});
  definition.added.push_back({.id = first + 1, .content = "\u6f22", .special = true});
  definition.added.push_back({.id = first + 2, .content = "x\u0120", .special = true});  // spelled as bytes
  const BpeTokenizer tokenizer(std::move(definition));
  EXPECT_EQ(tokenizer.encode("two words\u6f22"), (Ids{first, first + 1}));
  EXPECT_EQ(tokenizer.decode(Ids{first, first + 1, first + 2}), "two words\u6f22x ");
  EXPECT_FALSE(tokenizer.is_special(first));
  EXPECT_TRUE(tokenizer.is_special(first + 1));
  EXPECT_FALSE(tokenizer.is_special('a'));
  EXPECT_EQ(tokenizer.cut("the two words", 1), 13U);  // one of them has a space in it
}

TEST(BpeTokenizer, RefusesDefinitionsThatDoNotFitTogether) {
  const auto refused = [](const std::function<void(BpeDefinition&)>& change, const std::string& word) {
    BpeDefinition definition = small_definition();
    change(definition);
    expect_bad_input([&] { const BpeTokenizer tokenizer(std::move(definition), "here"); }, {"here", word});
  };
  refused([](BpeDefinition& d) { d.tokens[65].clear(); }, "byte 65");
  refused([](BpeDefinition& d) { d.tokens[257] = d.tokens[256]; }, "twice");
  refused([](BpeDefinition& d) { d.merges.push_back(d.merges[0]); }, "twice");
  refused([](BpeDefinition& d) { d.merges.emplace_back(-1, 5); }, "-1");
  refused([](BpeDefinition& d) { d.merges.emplace_back(5, 100000); }, "100000");
  refused([](BpeDefinition& d) { d.merges.emplace_back(1, 2); }, "not in the vocabulary");
  refused([](BpeDefinition& d) { d.added[0].id = 3; }, "another token");
  refused([](BpeDefinition& d) { d.added[0].content.clear(); }, "empty");
}

}  // namespace
}  // namespace tetrad
