// SPDX-License-Identifier: Apache-2.0
// `tetrad data` and `tetrad tokenizer`, as a user types them.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/process.h"
#include "tetrad/data/dataset.h"

namespace tetrad::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json run_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome run = run_tetrad(arguments);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.exit_code == 0 ? json::parse(run.out) : json();
}

void expect_bad_input(const std::vector<std::string>& arguments, const std::string& word) {
  const Outcome run = run_tetrad(arguments);
  EXPECT_EQ(run.exit_code, 2) << ::testing::PrintToString(arguments);
  EXPECT_NE(run.err.find(word), std::string::npos) << word << " in: " << run.err;
  EXPECT_EQ(run.out, "") << ::testing::PrintToString(arguments);
}

/// A folder of text: 40 files, and things that are to be skipped.
class DataCommand : public ::testing::Test {
 protected:
  DataCommand() {
    fs::create_directories(folder_ / "text/sub");
    fs::create_directories(folder_ / "text/.git");
    for (int i = 0; i < 40; ++i)
      write_file(
          folder_ / ("text/" + std::string(i % 2 == 0 ? "sub/" : "") + "f" + std::to_string(i) + ".txt"),
          text_of(i));
    write_file(folder_ / "text/picture.png", std::string("\x89PNG\0\1", 6));
    write_file(folder_ / "text/empty.txt", "");
    write_file(folder_ / "text/.git/config", "hidden");
    write_file(folder_ / "outside.txt", "outside");
    fs::create_symlink(folder_ / "outside.txt", folder_ / "text/link.txt");
    fs::create_symlink(folder_ / "text", folder_ / "text/sub/loop");
  }

  static std::string text_of(int i) {
    std::string text;
    for (int line = 0; line < 20; ++line)
      text += "the file " + std::to_string(i) + " says that the line is " + std::to_string(line) + "\n";
    return text;
  }

  std::string text() const { return folder_.file("text"); }
  std::string out() const { return folder_.file("out"); }

  TemporaryFolder folder_;
};

TEST_F(DataCommand, CreatesTheFolderOfItsOutput) {
  run_json({"data", "prepare", text(), "-o", folder_.file("a/b/prepared")});
  EXPECT_GT(TokenFile(folder_.file("a/b/prepared")).size(), 0);
  run_json(
      {"data", "synth", "markov", "-o", folder_.file("c/synth"), "--tokens", "1000", "--heldout", "0.1"});
  EXPECT_EQ(TokenFile(folder_.file("c/synth-heldout")).size(), 100);
  run_json({"tokenizer", "train", text(), "-o", folder_.file("d/e/tokenizer.json"), "--vocab", "300"});
  EXPECT_TRUE(fs::is_regular_file(folder_ / "d/e/tokenizer.json"));
  // Input that is refused leaves no folder behind.
  expect_bad_input({"data", "prepare", folder_.file("text/picture.png"), "-o", folder_.file("f/out")},
                   "zero bytes");
  EXPECT_FALSE(fs::exists(folder_ / "f"));
}

TEST_F(DataCommand, PrepareWithBytes) {
  const json report = run_json({"data", "prepare", text(), "-o", out(), "--heldout", "0.1"});
  EXPECT_EQ(report["files"], 40);
  EXPECT_EQ(report["skipped"], (json{{"binary", 1}, {"empty", 1}, {"symlinks", 2}}));
  const auto heldout_files = report["heldout_files"].get<int>();
  EXPECT_GE(heldout_files, 1);
  EXPECT_LE(heldout_files, 12);

  const TokenFile train(out());
  const TokenFile heldout(out() + "-heldout");
  EXPECT_EQ(train.documents(), 40 - heldout_files);
  EXPECT_EQ(heldout.documents(), heldout_files);
  // Together they are all files, each followed by a zero; sorted order within each part.
  std::string all;
  for (const TokenFile* file : {&train, &heldout}) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file->size()));
    file->read(0, ids);
    all += ByteTokenizer().decode(ids);
  }
  std::int64_t bytes = 0;
  for (int i = 0; i < 40; ++i) {
    EXPECT_NE(all.find(text_of(i) + '\0'), std::string::npos) << i;
    bytes += std::ssize(text_of(i));
  }
  EXPECT_EQ(std::ssize(all), bytes + 40);
  EXPECT_EQ(train.metadata()->bytes + heldout.metadata()->bytes, bytes);
  EXPECT_EQ(train.metadata()->tokenizer, "bytes");

  // The same again, from elsewhere and with other threads: the same bytes.
  const std::string before = read_file(out() + ".bin") + read_file(out() + "-heldout.bin");
  fs::rename(folder_ / "text", folder_ / "moved");
  run_json({"data", "prepare", folder_.file("moved"), "-o", out(), "--heldout", "0.1", "--threads", "3"});
  EXPECT_EQ(read_file(out() + ".bin") + read_file(out() + "-heldout.bin"), before);
}

TEST_F(DataCommand, TokenizerTrainThenPrepareThenInspect) {
  const std::string tokenizer = folder_.file("tokenizer.json");
  const json trained = run_json({"tokenizer", "train", text(), "-o", tokenizer, "--vocab", "300"});
  EXPECT_EQ(trained["skipped_binary"], 1);
  const auto vocab = trained["vocab"].get<std::int64_t>();
  EXPECT_GT(vocab, 280);
  const json prepared = run_json({"data", "prepare", text(), "-o", out(), "--tokenizer", tokenizer});
  EXPECT_EQ(prepared["train"]["tokenizer"]["hash"], trained["hash"]);
  EXPECT_GT(prepared["train"]["bytes"].get<double>() / prepared["train"]["tokens"].get<double>(), 2.0);

  const json inspected = run_json({"data", "inspect", out()});
  EXPECT_EQ(inspected["tokens"], prepared["train"]["tokens"]);
  EXPECT_DOUBLE_EQ(inspected["unigram_entropy"].get<double>(),
                   prepared["train"]["unigram_entropy"].get<double>());
  EXPECT_EQ(inspected["highest_id"], vocab - 1);  // the end of documents
  EXPECT_EQ(inspected["first_text"].get<std::string>().substr(0, 9), "the file ");
  EXPECT_NE(run_tetrad({"data", "inspect", out()}).out.find("the file "), std::string::npos);
  expect_bad_input({"data", "inspect", out(), "--vocab", "100"}, "vocabulary");

  const json encoded = run_json({"tokenizer", "encode", tokenizer, "the file says"});
  std::vector<std::string> decode = {"tokenizer", "decode", tokenizer};
  for (const json& id : encoded["ids"]) decode.push_back(id.dump());
  EXPECT_EQ(run_tetrad(decode).out, "the file says\n");
  EXPECT_LT(encoded["ids"].size(), 6U);
}

TEST_F(DataCommand, TokenizersReadAndWriteJsonLines) {
  const std::string tokenizer = folder_.file("tokenizer.json");
  run_json({"tokenizer", "train", text(), "-o", tokenizer, "--vocab", "300", "--split", "llama3"});
  EXPECT_NE(read_file(tokenizer).find("{1,3}"), std::string::npos);
  const Outcome encoded =
      run_tetrad({"tokenizer", "encode", "bytes", "--lines"}, {}, "\"Hi\"\n\"\"\n\"\\u0000\\u00e9\"\n");
  EXPECT_EQ(encoded.out, "[72,105]\n[]\n[0,195,169]\n") << encoded.err;
  const Outcome decoded =
      run_tetrad({"tokenizer", "decode", "bytes", "--lines"}, {}, "[72,105]\n[]\n[195]\n");
  EXPECT_EQ(decoded.out, "\"Hi\"\n\"\"\n\"\uFFFD\"\n") << decoded.err;
  for (const char* bad : {"7\n", "\"a\n", "[\"a\"]\n", "\"\\ud800\"\n"}) {
    const Outcome run = run_tetrad({"tokenizer", "encode", tokenizer, "--lines"}, {}, bad);
    EXPECT_EQ(run.exit_code, 2) << bad;
    EXPECT_NE(run.err.find("line 1"), std::string::npos) << run.err;
  }
  EXPECT_EQ(run_tetrad({"tokenizer", "decode", tokenizer, "--lines"}, {}, "[-1]\n").exit_code, 2);
  EXPECT_EQ(run_tetrad({"tokenizer", "encode", tokenizer, "text", "--lines"}).exit_code, 2);
  EXPECT_EQ(run_tetrad({"tokenizer", "decode", tokenizer}).exit_code, 2);
  // What cannot be UTF-8 is shown, not an error.
  EXPECT_EQ(run_tetrad({"tokenizer", "decode", "bytes", "65", "255"}).out, "A\uFFFD\n");
}

TEST_F(DataCommand, SpecialTokensGoAroundTextsWhereTheyAreAskedFor) {
  const std::string tokenizer = folder_.file("tokenizer.json");
  const json trained = run_json({"tokenizer", "train", text(), "-o", tokenizer, "--vocab", "300"});
  const auto begin = trained["vocab"].get<std::int32_t>();
  json root = json::parse(read_file(tokenizer));
  json added = root["added_tokens"][0];
  added.update({{"id", begin}, {"content", "<s>"}});
  root["added_tokens"].push_back(added);
  root["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {begin}}}}}}};
  write_file(tokenizer, root.dump());
  const json plain = run_json({"tokenizer", "encode", tokenizer, "the file"})["ids"];
  json special = run_json({"tokenizer", "encode", tokenizer, "the file", "--special"})["ids"];
  EXPECT_EQ(special[0], begin);
  special.erase(0);
  EXPECT_EQ(special, plain);
  const std::string id = std::to_string(begin);
  EXPECT_EQ(run_json({"tokenizer", "decode", tokenizer, id, "65"})["text"], "<s>A");
  EXPECT_EQ(run_json({"tokenizer", "decode", tokenizer, id, "65", "--skip-special"})["text"], "A");

  const std::vector<std::string> prepare = {"data", "prepare", text(), "-o", out(), "--tokenizer", tokenizer};
  const json without = run_json(prepare);
  std::vector<std::string> with_special = prepare;
  with_special.emplace_back("--special");
  const json with = run_json(with_special);
  EXPECT_EQ(with["train"]["tokens"].get<int>(),
            without["train"]["tokens"].get<int>() + without["train"]["documents"].get<int>());
  EXPECT_EQ(run_json({"data", "inspect", out()})["first_tokens"][0], begin);
}

TEST_F(DataCommand, ConvertsTokenFilesOfOthers) {
  std::string llmc(1024, '\0');
  const std::int32_t header[] = {20240520, 1, 3};
  std::memcpy(llmc.data(), header, sizeof(header));
  write_file(folder_ / "a.bin", llmc + std::string("\1\0\2\0\3\0", 6));
  write_file(folder_ / "b.bin", std::string("\4\0\5\0", 4));
  EXPECT_EQ(run_json({"data", "inspect", folder_.file("a")})["format"], "llm.c");
  EXPECT_EQ(run_json({"data", "inspect", folder_.file("b.bin")})["format"], "raw");
  const json report = run_json(
      {"data", "convert", folder_.file("a.bin"), folder_.file("b.bin"), "-o", out(), "--vocab", "10"});
  EXPECT_EQ(report["tokens"], 5);
  EXPECT_EQ(report["vocab"], 10);
  const json inspected = run_json({"data", "inspect", out()});
  EXPECT_EQ(inspected["format"], "Megatron");
  EXPECT_EQ(inspected["documents"], 2);
  EXPECT_EQ(inspected["first_tokens"], (json{1, 2, 3, 4, 5}));
  expect_bad_input({"data", "convert", folder_.file("a.bin"), "-o", out(), "--vocab", "3"}, "vocabulary");
  expect_bad_input({"data", "convert", folder_.file("absent"), "-o", out()}, "absent.bin");
  expect_bad_input({"data", "convert", folder_.file("b"), "-o", out()}, "nanoGPT");
  expect_bad_input({"data", "inspect", folder_.file("a"), "--vocab", "2"}, "vocabulary");
}

TEST_F(DataCommand, PrepareASingleFileHoldsOutItsEnd) {
  const json report =
      run_json({"data", "prepare", folder_.file("text/f1.txt"), "-o", out(), "--heldout", "0.2"});
  const TokenFile heldout(out() + "-heldout");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(heldout.size()));
  heldout.read(0, ids);
  const std::string end = ByteTokenizer().decode(ids);
  EXPECT_TRUE(end.starts_with("the file 1 says"));
  EXPECT_TRUE((text_of(1) + '\0').ends_with(end));
  EXPECT_NEAR(static_cast<double>(end.size()), 0.2 * static_cast<double>(text_of(1).size()), 60);
  run_json({"data", "prepare", folder_.file("text/f1.txt"), "-o", folder_.file("whole"), "--heldout", "0"});
  EXPECT_FALSE(fs::exists(folder_ / "whole-heldout.bin"));
}

TEST_F(DataCommand, IncludeSelectsFiles) {
  EXPECT_EQ(run_json({"data", "prepare", text(), "-o", out(), "--include", "f1?.txt"})["files"], 10);
  EXPECT_EQ(run_json({"data", "prepare", text(), "-o", out(), "--include", "sub/*"})["files"], 20);
  EXPECT_EQ(run_json({"data", "prepare", text(), "-o", out(), "--include", "f1.txt", "--include",
                      "f2.txt"})["files"],
            2);
}

TEST_F(DataCommand, SynthWritesTheEntropyAndAHeldOutPart) {
  for (const std::string kind : {"markov", "pcfg", "recall", "arithmetic", "uniform"}) {
    const json report = run_json({"data", "synth", kind, "-o", out(), "--tokens", "20000", "--seed", "7"});
    const TokenFile train(out());
    const TokenFile heldout(out() + "-heldout");
    EXPECT_EQ(train.size(), 20000);
    EXPECT_EQ(heldout.size(), 400);
    EXPECT_EQ(train.metadata()->kind, kind);
    EXPECT_EQ(train.metadata()->parameters.at("seed"), 7);
    ASSERT_TRUE(train.metadata()->entropy);
    EXPECT_EQ(train.metadata()->entropy, heldout.metadata()->entropy);
    EXPECT_EQ(report["train"]["entropy"], *train.metadata()->entropy);
    if (kind != "uniform") {
      EXPECT_LT(*train.metadata()->entropy, train.metadata()->unigram_entropy);
    }
    EXPECT_NE(run_tetrad({"data", "inspect", out()}).out.find(kind), std::string::npos);
  }
}

TEST_F(DataCommand, EveryCommandExplainsItself) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"data"},
                                             {"data", "prepare"},
                                             {"data", "synth"},
                                             {"data", "convert"},
                                             {"data", "inspect"},
                                             {"tokenizer"},
                                             {"tokenizer", "train"},
                                             {"tokenizer", "encode"},
                                             {"tokenizer", "decode"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const Outcome run = run_tetrad(arguments);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_NE(run.out.find("Examples:\n  tetrad " + command[0]), std::string::npos)
        << ::testing::PrintToString(command);
  }
}

TEST_F(DataCommand, BadInputIsExitCodeTwo) {
  const std::string bad = folder_.file("bad.json");
  write_file(bad, "{\"model\": {}}");
  write_file(folder_ / "damaged.bin", "ab");
  write_file(folder_ / "damaged.idx", "MMIDIDX");
  expect_bad_input({"data"}, "subcommand");
  expect_bad_input({"data", "prepare", text()}, "--output");
  expect_bad_input({"data", "prepare", folder_.file("absent"), "-o", out()}, "absent");
  expect_bad_input({"data", "prepare", text(), "-o", out(), "--include", "*.zip"}, "no files");
  expect_bad_input({"data", "prepare", folder_.file("text/picture.png"), "-o", out()}, "zero bytes");
  expect_bad_input({"data", "prepare", text(), "-o", out(), "--tokenizer", bad}, "bad.json");
  expect_bad_input({"data", "prepare", text(), "-o", out(), "--heldout", "1.5"}, "heldout");
  expect_bad_input({"data", "prepare", text(), "-o", out(), "--heldout", "nan"}, "--heldout");
  expect_bad_input({"data", "prepare", text(), "-o", folder_.file("outside.txt/new/out")}, "outside.txt");
  expect_bad_input({"data", "synth", "klingon", "-o", out()}, "klingon");
  expect_bad_input({"data", "synth", "markov", "-o", out(), "--branching", "100"}, "successors");
  expect_bad_input({"data", "synth", "markov", "-o", out(), "--tokens", "0"}, "tokens");
  expect_bad_input({"data", "inspect", folder_.file("absent")}, "absent.bin");
  expect_bad_input({"data", "inspect", folder_.file("damaged")}, "damaged.idx");
  expect_bad_input({"tokenizer", "train", text(), "-o", bad, "--vocab", "100"}, "257");
  expect_bad_input({"tokenizer", "train", folder_.file("absent"), "-o", bad, "--vocab", "300"}, "absent");
  expect_bad_input({"tokenizer", "encode", bad, "x"}, "bad.json");
  EXPECT_FALSE(fs::exists(out() + ".bin"));
  EXPECT_EQ(read_file(bad), "{\"model\": {}}");
}

}  // namespace
}  // namespace tetrad::testing
