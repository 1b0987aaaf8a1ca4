// SPDX-License-Identifier: Apache-2.0
#include "start_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "number_checks.h"
#include "tetrad/core/error.h"
#include "tetrad/ops/backend.h"
#include "tetrad/parallel/launch.h"
#include "tetrad/parallel/mpi_communicator.h"

namespace tetrad::app {
namespace {

constexpr std::int64_t kMostRanks = 1 << 16;

std::string shown(const RankOptions& options) {
  return options.gpus > 0 ? fmt::format("--gpus {}", options.gpus) : fmt::format("--ranks {}", options.ranks);
}

void refuse_launcher(const RankOptions& options) {
  const auto launched =
      launched_by([](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
  // A batch script of Slurm looks as if srun had started it; with a single task mpirun works there.
  const bool is_batch_script = launched && launched->variable.starts_with("SLURM") && launched->ranks == 1;
  TETRAD_CHECK(!launched || is_batch_script,
               "{} starts ranks with mpirun, but this is a rank of a launcher already ({}={}): leave it out",
               shown(options), launched->variable, launched->ranks);
}

void find_gpu(int index) {
  try {
    make_cuda_backend({.device = index, .tune = false, .native = false});
  } catch (const Error& error) {
    fail("--gpus {}: {}", index + 1, error.what());
  }
}

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  TETRAD_CHECK(!words.empty(), "this program's command line cannot be read from /proc: start it with mpirun");
  words[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

std::vector<std::string> launcher(int ranks) {
  std::vector<std::string> words = {"mpirun", "-n", fmt::to_string(ranks), "--bind-to", "none"};
  if (mpi_version().starts_with("Open MPI")) {
    words.emplace_back("--oversubscribe");  // how many fit is not to be guessed from the number of cores
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");  // as this program runs already
  }
  return words;
}

[[noreturn]] void become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  if (errno == ENOENT)
    fail(
        "mpirun is not there: install it (on Debian and Ubuntu openmpi-bin), or let PATH name the folder of "
        "that of {}",
        mpi_version());
  fail_errno("cannot start mpirun");
}

}  // namespace

void add_rank_options(CLI::App& command, RankOptions& options) {
  CLI::Option* const ranks =
      command
          .add_option("--ranks", options.ranks,
                      "Start N ranks on this machine with mpirun: they share its GPUs or its processors")
          ->check(whole_number(1, kMostRanks))
          ->type_name("N");
  command
      .add_option("--gpus", options.gpus,
                  "The same with one rank for each of N GPUs (as --ranks N --backend cuda)")
      ->check(whole_number(1, kMostRanks))
      ->type_name("N")
      ->excludes(ranks);
}

void choose_backend_for(const RankOptions& options, std::string& backend) {
  if (options.gpus == 0) return;
  TETRAD_CHECK(backend != "cpu", "--gpus {} is for --backend cuda, not cpu: use --ranks {}", options.gpus,
               options.gpus);
  backend = "cuda";
}

std::vector<std::string> words_of_rank(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  bool says_backend = false;
  bool wants_gpus = false;
  std::size_t i = 0;
  for (; i < words.size() && words[i] != "--"; ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name != "--ranks" && name != "--gpus") {
      says_backend |= name == "--backend";
      result.push_back(words[i]);
      continue;
    }
    wants_gpus |= name == "--gpus";
    if (name == words[i]) ++i;  // its number is a word of its own
  }
  if (wants_gpus && !says_backend) result.insert(result.end(), {"--backend", "cuda"});
  for (; i < words.size(); ++i) result.push_back(words[i]);
  return result;
}

void start_ranks(const RankOptions& options) {
  const int count = options.count();
  if (count <= 1) return;
  refuse_launcher(options);
  TETRAD_CHECK(
      !mpi_version().empty(),
      "{} needs MPI, which this build does not have: install it (on Debian and Ubuntu libopenmpi-dev "
      "and openmpi-bin) and build again",
      shown(options));
  if (options.gpus > 0) find_gpu(options.gpus - 1);
  std::vector<std::string> words = launcher(count);
  for (std::string& word : words_of_rank(own_words())) words.push_back(std::move(word));
  become(std::move(words));
}

}  // namespace tetrad::app
