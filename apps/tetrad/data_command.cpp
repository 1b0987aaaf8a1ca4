// SPDX-License-Identifier: Apache-2.0
#include "data_command.h"

#include "command.h"
#include "number_checks.h"

namespace tetrad::app {
namespace {

void add_prepare(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "prepare",
      "Tokenize text files and folders into a token file: NAME.bin and NAME.idx (Megatron), NAME.json, and "
      "the same for "
      "NAME-heldout. Every file is a document. Binary files, names that begin with a dot and symbolic links "
      "are "
      "skipped in folders.");
  auto arguments = std::make_shared<PrepareArguments>();
  command->add_option("PATH", arguments->paths, "Text files or folders")->required();
  command->add_option("-o,--output", arguments->output, "NAME of the token file")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "bytes, a tokenizer.json, or ENCODING:FILE (tiktoken)")
      ->capture_default_str();
  command
      ->add_option(
          "--heldout", arguments->heldout,
          "Fraction to hold out: of the files (by a hash of their paths), or the end of a single file")
      ->check(number_between(0, 0.99))
      ->capture_default_str();
  command
      ->add_option("--include", arguments->include,
                   "Only files in folders whose name matches, such as '*.md'")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_flag("--special", arguments->special,
                    "Wrap every document in the special tokens of the tokenizer's template (Llama 3: "
                    "<|begin_of_text|> first), besides the end-of-document token");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  add_threads_option(*command, arguments->threads);
  set_examples(*command,
               "  tetrad data prepare /usr/include/c++ -o headers\n"
               "  tetrad data prepare book.txt notes/ -o text --tokenizer tokenizer.json --heldout 0.05\n"
               "  tetrad data prepare src -o code --include '*.cpp' --include '*.h'");
  command->callback([&action, arguments] {
    action = [arguments] {
      data_prepare(*arguments);
      return ExitCode::ok;
    };
  });
}

void add_synth(CLI::App& data, Action& action) {
  CLI::App* command =
      data.add_subcommand("synth",
                          "Generate a language with known entropy as a token file. The entropy (nats per "
                          "token, given all tokens before) "
                          "is "
                          "written to NAME.json, so that training can report its distance from the optimum.");
  auto arguments = std::make_shared<SynthArguments>();
  SynthConfig& config = arguments->config;
  const auto kinds = synth_kinds();
  command->add_option("KIND", config.kind, "Which language")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(kinds.begin(), kinds.end())));
  command->add_option("-o,--output", arguments->output, "NAME of the token file")
      ->required()
      ->type_name("NAME");
  command->add_option("--tokens", arguments->tokens, "Tokens to write")
      ->check(whole_number(1, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--heldout", arguments->heldout, "Tokens of NAME-heldout, as a fraction of --tokens")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command->add_option("--vocab", config.vocab, "Size of the vocabulary (default: depends on the language)")
      ->check(whole_number(1));
  command->add_option("--seed", config.seed, "Seed of the language and of its text")
      ->check(whole_number(0))
      ->capture_default_str();
  const auto add = [&](const char* option, std::int64_t& value, const char* help) {
    command->add_option(option, value, help)->check(whole_number(1))->capture_default_str();
  };
  add("--branching", config.branching, "markov: successors of each token");
  add("--depth", config.depth, "pcfg: levels of rules");
  add("--symbols", config.symbols, "pcfg: nonterminals of each level");
  add("--rules", config.rules, "pcfg: rules of each nonterminal");
  add("--pairs", config.pairs, "recall: keys with values in an episode");
  add("--queries", config.queries, "recall: questions in an episode");
  add("--digits", config.digits, "arithmetic: digits of an operand, at most");
  command->add_flag("--reversed", config.reversed, "arithmetic: write the answer's last digit first");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  tetrad data synth markov -o chain --vocab 64 --branching 4 --tokens 2000000\n"
               "  tetrad data synth recall -o recall --pairs 8\n"
               "  tetrad data synth arithmetic -o sums --digits 2 --reversed");
  command->callback([&action, arguments] {
    action = [arguments] {
      data_synth(*arguments);
      return ExitCode::ok;
    };
  });
}

void add_convert(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand("convert",
                                          "Concatenate token files of Megatron, llm.c or nanoGPT into one "
                                          "Megatron file with its NAME.json. All of them are checked first.");
  auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("IN", arguments->inputs, "Token files; write the .bin for those without an .idx")
      ->required();
  command->add_option("-o,--output", arguments->output, "NAME of the token file")
      ->required()
      ->type_name("NAME");
  command->add_option(
      "--tokenizer", arguments->tokenizer,
      "Tokenizer that made the tokens, recorded in NAME.json: bytes, a tokenizer.json, or ENCODING:FILE");
  command
      ->add_option("--vocab", arguments->vocab,
                   "All ids must be below this (default: from the tokenizer, else from the files, else the "
                   "highest id + 1)")
      ->check(whole_number(1));
  command
      ->add_option("--document-end", arguments->document_end,
                   "End a document after every token with this id, for files that do not mark documents")
      ->check(whole_number(0))
      ->type_name("ID");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  add_threads_option(*command, arguments->threads);
  set_examples(
      *command,
      "  tetrad data convert fineweb_train_000001.bin fineweb_train_000002.bin -o fineweb --vocab 50257\n"
      "  tetrad data convert openwebtext/train.bin -o owt --document-end 50256");
  command->callback([&action, arguments] {
    action = [arguments] {
      data_convert(*arguments);
      return ExitCode::ok;
    };
  });
}

void add_inspect_tokens(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "inspect",
      "Check a token file and describe its contents. Reads all of it, and fails if anything is wrong.");
  auto arguments = std::make_shared<InspectArguments>();
  command
      ->add_option("NAME", arguments->name,
                   "Megatron or llm.c token file, with or without .bin; nanoGPT token file, with .bin")
      ->required();
  command
      ->add_option("--vocab", arguments->vocab,
                   "All ids must be below this (default: the vocabulary in NAME.json, if there is one)")
      ->check(whole_number(1));
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  add_threads_option(*command, arguments->threads);
  set_examples(*command,
               "  tetrad data inspect headers\n  tetrad data inspect foreign.bin --vocab 50257 --json");
  command->callback([&action, arguments] {
    action = [arguments] {
      data_inspect(*arguments);
      return ExitCode::ok;
    };
  });
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* data =
      app.add_subcommand("data", "Make token files from text, synthesize, convert and inspect them");
  data->require_subcommand(1);
  add_prepare(*data, action);
  add_synth(*data, action);
  add_convert(*data, action);
  add_inspect_tokens(*data, action);
  set_examples(*data,
               "  tetrad data prepare notes/ -o notes\n"
               "  tetrad data synth markov -o chain\n"
               "  tetrad data inspect notes");
}

}  // namespace tetrad::app
