// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "command.h"
#include "progress.h"
#include "terminal.h"
#include "tetrad/core/error.h"
#include "tetrad/data/text_files.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/strict_json.h"
#include "tetrad/tokenizer/bpe_trainer.h"
#include "tetrad/tokenizer/tokenizer_json.h"
#include "tetrad/tokenizer/unicode.h"

namespace tetrad::app {
namespace {

struct TrainArguments {
  std::vector<std::string> paths;
  std::vector<std::string> include;
  std::string output;
  std::int64_t vocab = 0;
  std::string split = "gpt2";
  bool json = false;
};

struct EncodeArguments {
  std::string tokenizer;
  std::optional<std::string> text;
  bool lines = false;
  bool special = false;
  bool json = false;
};

struct DecodeArguments {
  std::string tokenizer;
  std::vector<std::int32_t> ids;
  bool lines = false;
  bool skip_special = false;
  bool json = false;
};

void train(const TrainArguments& arguments) {
  const TextFiles files = find_text_files(arguments.paths, arguments.include);
  BpeTrainer trainer(*split_of_name(arguments.split));
  std::int64_t bytes = 0;
  std::int64_t binary = 0;
  for (std::size_t i = 0; i < files.files.size(); ++i) {
    const MappedFile file(files.files[i].path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.find('\0') != std::string_view::npos) {
      ++binary;
    } else {
      trainer.add(text);
      bytes += std::ssize(text);
    }
    show_progress("counting words", static_cast<std::int64_t>(i) + 1, std::ssize(files.files));
  }
  const BpeTokenizer tokenizer(trainer.train(arguments.vocab));
  if (tokenizer.vocab() < arguments.vocab)
    terminal().say(fmt::format("the text has too few pairs that occur twice: {} tokens instead of {}",
                               tokenizer.vocab(), arguments.vocab));
  const FoldersAbove folders(arguments.output);
  write_file_atomically(arguments.output, to_tokenizer_json(tokenizer.definition()));
  if (arguments.json) {
    const nlohmann::json object = {{"output", arguments.output},
                                   {"vocab", tokenizer.vocab()},
                                   {"hash", tokenizer.hash()},
                                   {"files", files.files.size()},
                                   {"bytes", bytes},
                                   {"skipped_binary", binary},
                                   {"merges", tokenizer.definition().merges.size()}};
    fmt::print("{}\n", json_text(object, 2));
    return;
  }
  fmt::print("read {} files, {} bytes ({} binary files skipped)\nwrote {}: {}, hash {}\n", files.files.size(),
             bytes, binary, arguments.output, tokenizer.description(), tokenizer.hash());
}

std::string standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text, bool special) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (special) {
    ids.insert(ids.begin(), tokenizer.prefix().begin(), tokenizer.prefix().end());
    ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
  }
  return ids;
}

std::string decode(const Tokenizer& tokenizer, std::vector<std::int32_t> ids, bool skip_special) {
  if (skip_special) std::erase_if(ids, [&](std::int32_t id) { return tokenizer.is_special(id); });
  return replace_invalid_utf8(tokenizer.decode(ids));
}

/// Calls body(value) for every line of standard input, a JSON value each.
template <typename Body>
void for_each_json_line(const Body& body) {
  constexpr JsonLimits kLimits = {.bytes = std::size_t{256} << 20, .depth = 2};
  std::string text;
  for (std::int64_t line = 1; std::getline(std::cin, text); ++line) {
    const std::string where = fmt::format("line {}", line);
    body(parse_strict_json(text, where, kLimits), where);
  }
}

void encode(const EncodeArguments& arguments) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(arguments.tokenizer);
  if (arguments.lines) {
    TETRAD_CHECK(!arguments.text, "--lines reads standard input: leave out TEXT");
    for_each_json_line([&](const nlohmann::json& text, const std::string& where) {
      TETRAD_CHECK(text.is_string(), "{} is not a JSON string", where);
      const auto ids = encode(*tokenizer, text.get_ref<const std::string&>(), arguments.special);
      fmt::print("[{}]\n", fmt::join(ids, ","));
    });
    return;
  }
  const auto ids = encode(*tokenizer, arguments.text ? *arguments.text : standard_input(), arguments.special);
  if (arguments.json)
    fmt::print("{}\n", json_text(nlohmann::json({{"ids", ids}})));
  else
    fmt::print("{}\n", fmt::join(ids, " "));
}

void decode(const DecodeArguments& arguments) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(arguments.tokenizer);
  if (arguments.lines) {
    TETRAD_CHECK(arguments.ids.empty(), "--lines reads standard input: leave out ID");
    for_each_json_line([&](const nlohmann::json& list, const std::string& where) {
      TETRAD_CHECK(list.is_array(), "{} is not a JSON list of ids", where);
      std::vector<std::int32_t> ids;
      for (const nlohmann::json& id : list)
        ids.push_back(static_cast<std::int32_t>(checked_integer(id, where + ": an id", 0, INT32_MAX)));
      fmt::print("{}\n",
                 json_text(nlohmann::json(decode(*tokenizer, std::move(ids), arguments.skip_special))));
    });
    return;
  }
  TETRAD_CHECK(!arguments.ids.empty(), "no ids: give some, or --lines and lists of them on standard input");
  const std::string text = decode(*tokenizer, arguments.ids, arguments.skip_special);
  if (arguments.json)
    fmt::print("{}\n", json_text(nlohmann::json({{"text", text}})));
  else
    fmt::print("{}\n", text);
}

void add_train_tokenizer(CLI::App& tokenizer, Action& action) {
  CLI::App* command = tokenizer.add_subcommand(
      "train",
      "Learn a byte-level BPE from text files and folders; written as a Hugging Face tokenizer.json");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("PATH", arguments->paths, "Text files or folders")->required();
  command->add_option("-o,--output", arguments->output, "The tokenizer.json to write")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--vocab", arguments->vocab, "Vocabulary size, including the 256 bytes and <|endoftext|>")
      ->required();
  command
      ->add_option("--include", arguments->include,
                   "Only files in folders whose name matches, such as '*.md'")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  std::vector<std::string> splits;
  for (const Split& split : regex_splits()) splits.emplace_back(split.name);
  command->add_option("--split", arguments->split, "Where words end")
      ->check(CLI::IsMember(splits))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  tetrad tokenizer train /usr/include/c++ -o tokenizer.json --vocab 4096\n"
               "  tetrad tokenizer train notes/ -o notes.json --vocab 1024 --include '*.md'");
  command->callback([&action, arguments] {
    action = [arguments] {
      train(*arguments);
      return ExitCode::ok;
    };
  });
}

constexpr const char* kTokenizerHelp =
    "bytes, a tokenizer.json, or ENCODING:FILE for a tiktoken file (r50k, p50k, cl100k, o200k, llama3, "
    "llama3.1)";

void add_encode(CLI::App& tokenizer, Action& action) {
  CLI::App* command = tokenizer.add_subcommand("encode", "Text to token ids");
  auto arguments = std::make_shared<EncodeArguments>();
  command->add_option("TOKENIZER", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_option("TEXT", arguments->text, "The text (default: standard input)");
  command->add_flag("--special", arguments->special,
                    "Add the special tokens of the tokenizer's template, such as <|begin_of_text|>");
  command->add_flag(
      "--lines", arguments->lines,
      "Standard input has a text per line, as a JSON string; standard output gets a list of ids per "
      "line");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  tetrad tokenizer encode tokenizer.json 'Hello world'\n"
               "  tetrad tokenizer encode llama3:tokenizer.model --special 'Hello world'\n"
               "  tetrad tokenizer encode bytes <README.md");
  command->callback([&action, arguments] {
    action = [arguments] {
      encode(*arguments);
      return ExitCode::ok;
    };
  });
}

void add_decode(CLI::App& tokenizer, Action& action) {
  CLI::App* command =
      tokenizer.add_subcommand("decode", "Token ids to text, with U+FFFD where they are not valid UTF-8.");
  auto arguments = std::make_shared<DecodeArguments>();
  command->add_option("TOKENIZER", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_option("ID", arguments->ids, "Token ids");
  command->add_flag("--skip-special", arguments->skip_special, "Leave out special tokens");
  command->add_flag(
      "--lines", arguments->lines,
      "Standard input has a JSON list of ids per line; standard output gets a JSON string per line");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  set_examples(*command, "  tetrad tokenizer decode bytes 72 101 108 108 111");
  command->callback([&action, arguments] {
    action = [arguments] {
      decode(*arguments);
      return ExitCode::ok;
    };
  });
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "Train a tokenizer; encode and decode text");
  tokenizer->require_subcommand(1);
  add_train_tokenizer(*tokenizer, action);
  add_encode(*tokenizer, action);
  add_decode(*tokenizer, action);
  set_examples(*tokenizer, "  tetrad tokenizer train notes/ -o tokenizer.json --vocab 4096");
}

}  // namespace tetrad::app
