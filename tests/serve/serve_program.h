// SPDX-License-Identifier: Apache-2.0
#pragma once
// `tetrad serve` as a program, and a small model for it.

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/http_client.h"
#include "support/process.h"

namespace tetrad::testing {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// A server that listens, and what a test asks it.
class Server {
 public:
  explicit Server(Words arguments, const Words& environment = {})
      : program_(with_defaults(std::move(arguments)), environment) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (program_.out().find('\n') == std::string::npos) {
      if (program_.finished() || std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("the server does not start: " + program_.err());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    port_ = static_cast<std::uint16_t>(std::stoi(program_.out().substr(program_.out().rfind(':') + 1)));
  }

  std::uint16_t port() const { return port_; }
  RunningTetrad& program() { return program_; }
  HttpAnswer get(const std::string& path) const { return HttpClient(port_).get(path); }
  HttpAnswer post(const std::string& path, const std::string& body) const {
    return HttpClient(port_).post(path, body);
  }
  HttpAnswer complete(const std::string& body) const { return post("/v1/completions", body); }
  HttpAnswer ask(const std::string& bytes) const { return HttpClient(port_).ask(bytes); }
  /// The number after `name` on the page of figures; -1 if there is none.
  double figure(const std::string& name) const {
    const std::string page = "\n" + get("/metrics").body;
    const std::size_t at = page.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
  }
  /// Waits until that number is below `limit`.
  bool figure_falls(const std::string& name, double limit) const {
    for (int i = 0; i < 1000 && figure(name) >= limit; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return figure(name) < limit;
  }
  bool is_well() const { return get("/health").status == 200; }
  /// Waits until the log has a line with this.
  bool logs(const std::string& text) const {
    for (int i = 0; i < 1000; ++i) {
      if (program_.err().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  static Words with_defaults(Words arguments) {
    arguments.insert(arguments.begin(), "serve");
    for (const char* word : {"--port", "0", "--backend", "cpu", "--threads", "1"})
      arguments.emplace_back(word);
    return arguments;
  }

  RunningTetrad program_;
  std::uint16_t port_ = 0;
};

/// A model of bytes that was trained for two steps; made once.
class ServeCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_folder = std::make_unique<TemporaryFolder>();
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + " of the text\n";
    write_file(shared_folder->file("text.txt"), text);
    Outcome made =
        run_tetrad({"data", "prepare", shared_folder->file("text.txt"), "-o", shared_folder->file("data")});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    write_file(
        shared_folder->file("config.yaml"),
        "model: {name: tiny, pattern: '*-M-', hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 64,\n"
        "        vocab: 256, mamba: {heads: 16, head_dim: 4, groups: 1, state: 16, chunk: 16}}\n"
        "precision: {recipe: nvfp4, high_precision: {first: 0, last: 1}}\n"
        "data: {sources: {text: " +
            shared_folder->file("data") +
            "}}\n"
            "train: {steps: 2, batch: 2, sequence: 64}\nrun: {backend: cpu}\n");
    made = run_tetrad({"train", shared_folder->file("config.yaml"), "--out", run()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  static void TearDownTestSuite() { shared_folder.reset(); }

  static std::string run() { return shared_folder->file("run"); }

  inline static std::unique_ptr<TemporaryFolder> shared_folder;
};

}  // namespace tetrad::testing
