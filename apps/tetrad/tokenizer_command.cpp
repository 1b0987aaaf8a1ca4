#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "command.h"
#include "progress.h"
#include "tetrad/data/text_files.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/tokenizer/bpe_trainer.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad::app {
namespace {

struct TrainArguments {
  std::vector<std::string> paths;
  std::vector<std::string> include;
  std::string output;
  std::int64_t vocab = 0;
  bool json = false;
};

void train(const TrainArguments& arguments) {
  const TextFiles files = find_text_files(arguments.paths, arguments.include);
  BpeTrainer trainer;
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
    fmt::print(stderr, "tetrad: the text has too few pairs that occur twice: {} tokens instead of {}\n",
               tokenizer.vocab(), arguments.vocab);
  create_folder_of(arguments.output);
  write_file_atomically(arguments.output, to_tokenizer_json(tokenizer.definition()));
  if (arguments.json) {
    const nlohmann::json object = {{"output", arguments.output},
                                   {"vocab", tokenizer.vocab()},
                                   {"hash", tokenizer.hash()},
                                   {"files", files.files.size()},
                                   {"bytes", bytes},
                                   {"skipped_binary", binary},
                                   {"merges", tokenizer.definition().merges.size()}};
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("read {} files, {} bytes ({} binary files skipped)\nwrote {}: {}, hash {}\n", files.files.size(),
             bytes, binary, arguments.output, tokenizer.description(), tokenizer.hash());
}

std::string standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void encode(const std::string& spec, const std::optional<std::string>& text, bool json) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(spec);
  const std::vector<std::int32_t> ids = tokenizer->encode(text ? *text : standard_input());
  if (json)
    fmt::print("{}\n", nlohmann::json({{"ids", ids}}).dump());
  else
    fmt::print("{}\n", fmt::join(ids, " "));
}

void decode(const std::string& spec, const std::vector<std::int32_t>& ids, bool json) {
  const std::string text = load_tokenizer(spec)->decode(ids);
  if (json)
    fmt::print(
        "{}\n",
        nlohmann::json({{"text", text}}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
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
  command->add_option("--vocab", arguments->vocab, "Tokens in all, with the 256 bytes and <|endoftext|>")
      ->required();
  command->add_option("--include", arguments->include, "Only files in folders that match, such as '*.md'")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "One JSON object on stdout");
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

void add_encode(CLI::App& tokenizer, Action& action) {
  CLI::App* command = tokenizer.add_subcommand("encode", "Text to token ids");
  auto spec = std::make_shared<std::string>();
  auto text = std::make_shared<std::optional<std::string>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("TOKENIZER", *spec, "bytes, or a tokenizer.json")->required();
  command->add_option("TEXT", *text, "The text (default: standard input)");
  command->add_flag("--json", *json, "One JSON object on stdout");
  set_examples(*command,
               "  tetrad tokenizer encode tokenizer.json 'Hello world'\n"
               "  tetrad tokenizer encode bytes <README.md");
  command->callback([&action, spec, text, json] {
    action = [=] {
      encode(*spec, *text, *json);
      return ExitCode::ok;
    };
  });
}

void add_decode(CLI::App& tokenizer, Action& action) {
  CLI::App* command = tokenizer.add_subcommand("decode", "Token ids to text");
  auto spec = std::make_shared<std::string>();
  auto ids = std::make_shared<std::vector<std::int32_t>>();
  auto json = std::make_shared<bool>(false);
  command->add_option("TOKENIZER", *spec, "bytes, or a tokenizer.json")->required();
  command->add_option("ID", *ids, "Token ids")->required();
  command->add_flag("--json", *json, "One JSON object on stdout");
  set_examples(*command, "  tetrad tokenizer decode bytes 72 101 108 108 111");
  command->callback([&action, spec, ids, json] {
    action = [=] {
      decode(*spec, *ids, *json);
      return ExitCode::ok;
    };
  });
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "Text to tokens and back: train a tokenizer, try it");
  tokenizer->require_subcommand(1);
  add_train_tokenizer(*tokenizer, action);
  add_encode(*tokenizer, action);
  add_decode(*tokenizer, action);
  set_examples(*tokenizer, "  tetrad tokenizer train notes/ -o tokenizer.json --vocab 4096");
}

}  // namespace tetrad::app
