// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/snapshot.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tetrad/checkpoint/moment_conversion.h"
#include "tetrad/checkpoint/shared_state.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/model/weight_shards.h"

namespace tetrad {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";
constexpr int kStateVersion = 1;

template <typename... Args>
[[noreturn]] void unusable(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ExitCode::no_checkpoint);
}

/// Of bytes that begin at `offset` of the tensor.
void check_finite(const std::filesystem::path& path, const std::string& name,
                  std::span<const std::byte> bytes, std::size_t offset) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(float));  // the format promises no alignment
    if (!std::isfinite(value))
      unusable("{}: {} holds a value that is not finite (element {})", path.string(), name,
               (offset + at) / sizeof(float));
  }
}

enum class Values : std::uint8_t { any, finite };

/// `conversion`: moments may be stored otherwise.
void read_tensor(Backend& backend, const SafetensorsFile& file, const std::filesystem::path& path,
                 const std::string& name, const Parameter& parameter, Tensor& out,
                 Values values = Values::any, MomentConversion* conversion = nullptr) {
  const TensorInfo* info = file.find(name);
  if (info == nullptr) unusable("{} has no tensor {}: it belongs to another model", path.string(), name);
  const bool converts = conversion != nullptr && MomentConversion::knows(info->dtype, out.dtype());
  if ((info->dtype != out.dtype() && !converts) ||
      !std::equal(info->shape.begin(), info->shape.end(), parameter.shape.begin(), parameter.shape.end()))
    unusable("{}: {} is {} [{}], the model needs {} [{}]", path.string(), name, name_of(info->dtype),
             fmt::join(info->shape, ", "), name_of(out.dtype()), fmt::join(parameter.shape, ", "));
  // Piece by piece: the file is mapped, and what is mapped and used stays in memory until it is dropped.
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const auto row = static_cast<std::size_t>(parameter.cols() * bits_of(info->dtype) / 8);
  const std::span<const std::byte> bytes =
      file.bytes(*info).subspan(static_cast<std::size_t>(parameter.band.first) * row,
                                static_cast<std::size_t>(parameter.band.count) * row);
  std::size_t written = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kMostBytes) {
    const std::span<const std::byte> piece = bytes.subspan(at, std::min(kMostBytes, bytes.size() - at));
    if (values == Values::finite) check_finite(path, name, piece, at);
    const auto first = parameter.first_element() + static_cast<std::int64_t>(8 * at) / bits_of(info->dtype);
    const std::span<const std::byte> converted =
        converts ? conversion->convert(piece, info->dtype, first) : piece;
    backend.upload(converted, out.bytes().subspan(written, converted.size()));
    written += converted.size();
    file.drop(piece);
  }
}

RunIdentity identity_in(const nlohmann::json& state) {
  const auto run = state.find("run");
  if (run == state.end()) return {};
  RunIdentity identity{run->at("id").get<std::string>(), run->at("config").get<std::string>(),
                       run->at("data").get<std::map<std::string, std::string>>()};
  if (const auto branch = run->find("branch"); branch != run->end())
    identity.branch = branch->get<BranchPoint>();
  return identity;
}

}  // namespace

std::string changes_of_bits(const BitsDependOn& before, const BitsDependOn& now) {
  if (before.empty()) return "";
  const auto value_in = [](const BitsDependOn& properties, const std::string& name) {
    const auto found = properties.find(name);
    return found == properties.end() ? std::string("nothing") : found->second;
  };
  BitsDependOn names = before;
  names.insert(now.begin(), now.end());
  std::vector<std::string> changes;
  for (const auto& [name, ignored] : names)
    if (value_in(before, name) != value_in(now, name))
      changes.push_back(
          fmt::format("{}: {} before, {} now", name, value_in(before, name), value_in(now, name)));
  return fmt::format("{}", fmt::join(changes, "; "));
}

std::string state_text(const RunState& state) {
  nlohmann::json json = {{"version", kStateVersion},
                         {"step", state.step},
                         {"skips_in_row", state.skips_in_row},
                         {"data", state.data},
                         {"loss_watch", state.loss_watch},
                         {"tokenizer_hash", state.tokenizer_hash},
                         {"build", state.build}};
  json["scheduled_step"] = state.scheduled_step;
  json["rollbacks"] = state.rollbacks;
  json["rollback_samples"] = state.rollback_samples;
  if (state.best) json["best"] = {{"step", state.best->step}, {"loss", state.best->loss}};
  if (!state.bits_depend_on.empty()) json["bits_depend_on"] = state.bits_depend_on;
  if (!state.identity.id.empty())
    json["run"] = {
        {"id", state.identity.id}, {"config", state.identity.config}, {"data", state.identity.data}};
  if (state.identity.branch) json["run"]["branch"] = *state.identity.branch;
  return json.dump(1) + "\n";
}

namespace {

/// Without its tensors.
CheckpointContents texts_of(const RunState& state, const SnapshotTexts& texts) {
  CheckpointContents contents;
  contents.step = state.step;
  contents.build = state.build;
  contents.run = state.identity.id;
  contents.text_files[kStateFile] = state_text(state);
  contents.text_files["config.yaml"] = texts.config;
  if (!texts.tokenizer.empty()) contents.text_files["tokenizer.json"] = texts.tokenizer;
  return contents;
}

/// Calls body(file, parameter, suffix of the name, values) for each tensor of a run, in the files' order.
template <typename Body>
void for_each_tensor(Decoder& decoder, AdamWOptimizer& optimizer, const Body& body) {
  for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
    const Parameter& parameter = *decoder.parameters()[i];
    body(kModelFile, parameter, "", parameter.value);
    body(kOptimizerFile, parameter, ".first", optimizer.moments(i).first);
    body(kOptimizerFile, parameter, ".second", optimizer.moments(i).second);
  }
}

/// Who has what of the rows of a tensor.
SharedTensor shared_tensor(const Parameter& parameter, const Tensor& own, int ranks) {
  const auto row = static_cast<std::size_t>(parameter.cols() * bits_of(own.dtype()) / 8);
  SharedTensor shared{own.bytes(), {}};
  for (int rank = 0; rank < ranks; ++rank) {  // where nothing is shared, the first has it for all
    RowBand band{0, rank == 0 ? parameter.rows() : 0};
    if (parameter.shards != nullptr)
      band = parameter.shards->bands(parameter)[static_cast<std::size_t>(rank)];
    shared.ends.push_back((rank == 0 ? 0 : shared.ends.back()) + static_cast<std::size_t>(band.count) * row);
  }
  return shared;
}

}  // namespace

CheckpointContents make_snapshot(Decoder& decoder, AdamWOptimizer& optimizer, const RunState& state,
                                 const SnapshotTexts& texts) {
  CheckpointContents contents = texts_of(state, texts);
  for (int thread = 0; thread < kHashThreads; ++thread)
    contents.readers.push_back(decoder.backend().make_reader());
  for_each_tensor(decoder, optimizer,
                  [&](const char* file, const Parameter& parameter, const char* suffix, const Tensor& of) {
                    contents.tensor_files[file].push_back(
                        {parameter.name + suffix, of.dtype(), parameter.shape, of.bytes()});
                  });
  return contents;
}

CheckpointContents make_shared_snapshot(Decoder& decoder, AdamWOptimizer& optimizer, const RunState& state,
                                        const SnapshotTexts& texts, SnapshotMessages& messages) {
  const Communicator& ranks = decoder.shards()->ranks();
  TETRAD_CHECK(
      messages.way,
      "this MPI cannot be called by several threads at once (MPI_THREAD_MULTIPLE), which checkpoints "
      "of weights that ranks share need: use one that can, or parallel.zero=0");
  std::vector<SharedTensor> tensors;
  for_each_tensor(decoder, optimizer,
                  [&](const char* /*file*/, const Parameter& parameter, const char* /*suffix*/,
                      const Tensor& of) { tensors.push_back(shared_tensor(parameter, of, ranks.size())); });
  const auto shared = std::make_shared<SharedState>(
      decoder.backend(), *messages.way,
      SharedState::Place{ranks.rank(), ranks.size(), ++messages.snapshots, messages.patience},
      std::move(tensors));
  CheckpointContents contents = texts_of(state, texts);
  contents.memory = shared;
  if (ranks.rank() != 0) return contents;
  for (int thread = 0; thread < kHashThreads; ++thread)
    contents.readers.push_back(shared->make_reader(thread));
  std::size_t index = 0;
  for_each_tensor(decoder, optimizer,
                  [&](const char* file, const Parameter& parameter, const char* suffix, const Tensor& of) {
                    contents.tensor_files[file].push_back(
                        {parameter.name + suffix, of.dtype(), parameter.shape, shared->whole(index++)});
                  });
  return contents;
}

RunState load_snapshot(const std::filesystem::path& checkpoint, Decoder& decoder, AdamWOptimizer& optimizer,
                       MomentTypes types) {
  const SafetensorsFile model(checkpoint / kModelFile);
  const SafetensorsFile moments(checkpoint / kOptimizerFile);
  Backend& backend = decoder.backend();
  RunState state = load_state(checkpoint);
  for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
    Parameter& parameter = *decoder.parameters()[i];
    read_tensor(backend, model, checkpoint / kModelFile, parameter.name, parameter, parameter.value);
    const auto read_moment = [&](const char* suffix, Moment which, Tensor& out) {
      MomentConversion conversion(backend.threads(), which, optimizer.rounding(i, state.step));
      read_tensor(backend, moments, checkpoint / kOptimizerFile, parameter.name + suffix, parameter, out,
                  Values::any, types == MomentTypes::may_change ? &conversion : nullptr);
    };
    read_moment(".first", Moment::first, optimizer.moments(i).first);
    read_moment(".second", Moment::second, optimizer.moments(i).second);
  }
  decoder.weights_changed();
  return state;
}

RunState load_state(const std::filesystem::path& checkpoint) {
  try {
    const nlohmann::json json = nlohmann::json::parse(std::ifstream(checkpoint / kStateFile));
    if (json.at("version") != kStateVersion)
      unusable("{} has version {}; this program reads {}", (checkpoint / kStateFile).string(),
               json.at("version").dump(), kStateVersion);
    RunState state;
    json.at("step").get_to(state.step);
    if (state.step < 0)
      unusable("{} says step {}, which no run has", (checkpoint / kStateFile).string(), state.step);
    json.at("skips_in_row").get_to(state.skips_in_row);
    state.data = json.at("data");
    state.loss_watch = json.at("loss_watch");
    json.at("tokenizer_hash").get_to(state.tokenizer_hash);
    json.at("build").get_to(state.build);
    state.bits_depend_on = json.value("bits_depend_on", BitsDependOn());
    state.identity = identity_in(json);
    state.scheduled_step = json.value("scheduled_step", state.step);  // 0.1.0 went back to any
    state.rollbacks = json.value("rollbacks", std::int64_t{0});
    state.rollback_samples = json.value("rollback_samples", std::int64_t{0});
    if (const auto best = json.find("best"); best != json.end())
      state.best = {best->at("step").get<std::int64_t>(), best->at("loss").get<double>()};
    return state;
  } catch (const nlohmann::json::exception& error) {
    unusable("{} cannot be used: {}", (checkpoint / kStateFile).string(), error.what());
  }
}

void load_weights(const std::filesystem::path& checkpoint, Decoder& decoder) {
  const SafetensorsFile model(checkpoint / kModelFile);
  for (const auto& parameter : decoder.parameters()) {
    read_tensor(decoder.backend(), model, checkpoint / kModelFile, parameter->name, *parameter,
                parameter->value, Values::finite);
  }
  decoder.weights_changed();
}

}  // namespace tetrad
