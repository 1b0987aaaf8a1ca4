// SPDX-License-Identifier: Apache-2.0
#include "tetrad/recipe/recipe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/numerics/nvfp4.h"
#include "tetrad/recipe/table.h"

namespace tetrad {
namespace {

enum class Role : std::uint8_t { activation, weight, gradient };
constexpr std::array<Role, kOperands> kRoles = {Role::activation, Role::weight,   Role::gradient,
                                                Role::weight,     Role::gradient, Role::activation};

Role role_of(Operand operand) { return kRoles[static_cast<std::size_t>(operand)]; }

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void check_members(const std::optional<std::vector<std::string>>& list,
                   std::initializer_list<std::string_view> allowed, const char* key) {
  if (!list) return;
  for (const std::string& item : *list)
    TETRAD_CHECK(std::find(allowed.begin(), allowed.end(), item) != allowed.end(),
                 "precision.{}: '{}' is none of {}", key, item, fmt::join(allowed, ", "));
}

void check_one_of(const std::optional<std::string>& said, std::initializer_list<std::string_view> allowed,
                  const char* key) {
  TETRAD_CHECK(!said || std::find(allowed.begin(), allowed.end(), *said) != allowed.end(),
               "precision.{}: '{}' is none of {}", key, *said, fmt::join(allowed, ", "));
}

bool any_matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

/// Format, axis and blocks of an operand as the table has them.
QuantSpec plain_spec(const RecipeTable& table, Operand operand) {
  const bool is_weight = role_of(operand) == Role::weight;
  return {.format = table.format.value(),
          .block = is_weight ? table.weight_block : table.vector_block,
          .axis = axis_of(operand)};
}

/// What was in four bits is in FP8, as the recipe of that name has it: switches are about four bits.
void raise_to_fp8(LinearPrecision& precision) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    std::optional<QuantSpec>& spec = precision[operand];
    if (!spec) continue;
    if (spec->format != Format::fp8) spec = plain_spec(find_table("fp8"), operand);
    spec->hadamard = 0;  // a transform is for both operands of a product
  }
  precision.weight_source = precision.input_source = Source::input;
  precision.centre = false;
}

/// Squares, or runs along the reduction dimension.
BlockShape weight_block(BlockShape block, bool two_dimensional) {
  return {two_dimensional ? block.cols : 1, block.cols};
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::activation:
      return "activations";
    case Role::weight:
      return "weights";
    default:
      return "gradients";
  }
}

int hadamard_size(std::int64_t size) {
  TETRAD_CHECK(size == 0 || (size > 0 && size <= kMaxHadamard && is_hadamard_size(static_cast<int>(size))),
               "precision: Hadamard size {} is not supported: use 0 (none), 2, 4, 8, 16, 32, 64 or 128",
               size);
  return static_cast<int>(size);
}

/// A transform cancels only if both operands have it.
void pair_transforms(LinearPrecision& precision, Operand a, Operand b) {
  const bool both = precision[a] && precision[b];
  if (!both) {
    for (const Operand operand : {a, b})
      if (precision[operand]) precision[operand]->hadamard = 0;
    return;
  }
  TETRAD_CHECK(precision[a]->hadamard == precision[b]->hadamard,
               "precision: {} and {} are multiplied, so they need the same Hadamard size, not {} and {}",
               name_of(a), name_of(b), precision[a]->hadamard, precision[b]->hadamard);
}

/// Whether fprop multiplies transformed values, which are of no use to products along other dimensions.
bool transforms_fprop(const LinearPrecision& precision) {
  const auto is_transformed = [&](Operand operand) {
    return precision[operand] && precision[operand]->hadamard > 0;
  };
  return is_transformed(Operand::fprop_x) || is_transformed(Operand::fprop_w);
}

/// Where nothing of the backward pass is quantized, it multiplies by what the forward pass multiplied: the
/// gradient of a straight-through estimator passes through the quantizers, not around what they made.
void make_straight_through(LinearPrecision& precision) {
  const auto is_quantized = [&](Operand operand) { return precision[operand].has_value(); };
  constexpr std::array kBackward = {Operand::dgrad_dy, Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x};
  if (std::ranges::none_of(kBackward, is_quantized) && !transforms_fprop(precision))
    precision.weight_source = precision.input_source = Source::fprop;
}

}  // namespace

Recipe::Recipe(PrecisionConfig config, std::int64_t blocks) : config_(std::move(config)), blocks_(blocks) {
  check_members(config_.rht.gemms, {"fprop", "dgrad", "wgrad"}, "rht.gemms");
  check_members(config_.sr, {"gradients", "activations", "weights"}, "sr");
  check_one_of(config_.scale.forward, {"nearest", "4/6", "search"}, "scale.forward");
  check_one_of(config_.scale.backward, {"nearest", "4/6", "search", "eden"}, "scale.backward");
  check_one_of(config_.scale.mxfp4, {"up", "floor"}, "scale.mxfp4");
  check_one_of(config_.rht.signs, {"fixed", "none", "per-step", "fresh"}, "rht.signs");
  check_one_of(config_.source, {"input", "fprop"}, "source");
  for (const auto& [key, unused] : config_.operands)
    TETRAD_CHECK(std::find(kOperandNames.begin(), kOperandNames.end(), key) != kOperandNames.end(),
                 "precision.operands: '{}' is none of {}", key, fmt::join(kOperandNames, ", "));
  std::string_view forward = config_.recipe;
  std::string_view backward = config_.recipe;
  phases_.push_back(make_phase(forward, backward));
  for (const PrecisionSwitch& change : config_.schedule) {
    if (change.forward) forward = *change.forward;
    if (change.backward) backward = *change.backward;
    phases_.push_back(make_phase(forward, backward));
  }
}

bool Recipe::is_eden(Operand operand, const std::optional<Format>& format) const {
  return config_.scale.backward == "eden" && format == Format::nvfp4 && gemm_of(operand) != "fprop";
}

QuantSpec Recipe::base_spec(std::string_view recipe, Operand operand) const {
  const RecipeTable& base = find_table(recipe);
  const Role role = role_of(operand);
  // MS-EDEN brings what it needs, unless something else is said: rows of 16, nearest codes, large transforms.
  const bool eden = is_eden(operand, base.format);
  QuantSpec spec = plain_spec(base, operand);
  if (role == Role::weight && config_.weights_2d) spec.block = weight_block(spec.block, *config_.weights_2d);
  if (eden) spec.block = weight_block(spec.block, false);
  const bool is_stochastic = config_.sr ? contains(*config_.sr, role_name(role))
                                        : base.stochastic_gradients && role == Role::gradient && !eden;
  if (is_stochastic)
    spec.rounding =
        config_.sr_hardware.value_or(false) ? Rounding::stochastic_hardware : Rounding::stochastic;
  const bool transformed = config_.rht.gemms
                               ? contains(*config_.rht.gemms, gemm_of(operand))
                               : eden || (base.wgrad_hadamard > 0 && gemm_of(operand) == "wgrad");
  const std::int64_t usual_size = base.wgrad_hadamard > 0 ? base.wgrad_hadamard : 16;
  if (transformed) spec.hadamard = hadamard_size(config_.rht.size.value_or(eden ? kMaxHadamard : usual_size));
  if (config_.rht.signs == "none") spec.signs = kNoSigns;
  spec.scaling = scaling_of(recipe, operand, spec);
  return spec;
}

Scaling Recipe::scaling_of(std::string_view recipe, Operand operand, const QuantSpec& spec) const {
  // Square blocks of the weight are the same from both sides, so that dgrad's scales are fprop's.
  const bool is_square_weight = operand == Operand::dgrad_w && spec.block.rows == spec.block.cols;
  const bool is_forward = gemm_of(operand) == "fprop" || is_square_weight;
  const std::optional<std::string>& nvfp4 = is_forward ? config_.scale.forward : config_.scale.backward;
  const std::optional<std::string>& said = spec.format == Format::mxfp4 ? config_.scale.mxfp4 : nvfp4;
  if (said && spec.format != Format::fp8) return scaling_from_name(*said, spec.format);
  if (const RecipeTable& base = find_table(recipe); base.format == spec.format)
    return is_forward ? base.forward_scaling : base.backward_scaling;
  return spec.format == Format::mxfp4 ? Scaling::up : Scaling::standard;
}

void Recipe::apply_override(std::string_view recipe, Operand operand, std::optional<QuantSpec>& spec) const {
  const auto found = config_.operands.find(std::string(name_of(operand)));
  if (found == config_.operands.end()) return;
  const OperandConfig& said = found->second;
  if (said.format && *said.format == "bf16") {
    spec.reset();
    return;
  }
  if (said.format) {
    const Format format = format_from_name(*said.format);
    if (!spec || spec->format != format) {
      spec = spec.value_or(QuantSpec{.axis = axis_of(operand)});
      spec->format = format;
      spec->block = default_block(format);
      spec->scaling = scaling_of(recipe, operand, *spec);
    }
  }
  TETRAD_CHECK(!said.source || operand == Operand::dgrad_w || operand == Operand::wgrad_x,
               "precision.operands.{}: only dgrad.w and wgrad.x have a source", name_of(operand));
  TETRAD_CHECK(spec || !(said.block || said.rounding || said.hadamard || said.scale),
               "precision.operands.{}: it is not quantized here; say its format too", name_of(operand));
  if (said.block) spec->block = block_from_name(*said.block);
  if (said.rounding) spec->rounding = rounding_from_name(*said.rounding);
  if (said.hadamard) spec->hadamard = hadamard_size(*said.hadamard);
  try {
    if (said.scale) spec->scaling = scaling_from_name(*said.scale, spec->format);
    if (said.scale == "eden" && !said.rounding) spec->rounding = Rounding::nearest;
  } catch (const Error& error) {
    fail("precision.operands.{}.scale: {}", name_of(operand), error.what());
  }
}

LinearPrecision Recipe::table(std::string_view recipe) const {
  const RecipeTable& base = find_table(recipe);
  LinearPrecision result;
  // A schedule's time in BF16 is BF16; what is said about single operands is for the rest of the run.
  if (!base.format && !config_.schedule.empty()) return result;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (base.format) result[operand] = base_spec(recipe, operand);
    apply_override(recipe, operand, result[operand]);
  }
  pair_transforms(result, Operand::fprop_x, Operand::fprop_w);
  pair_transforms(result, Operand::dgrad_dy, Operand::dgrad_w);
  pair_transforms(result, Operand::wgrad_dy, Operand::wgrad_x);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (result[operand])  // with a shape that every quantizer takes: layers check their own
      validate(*result[operand], kMaxHadamard, kMaxHadamard, fmt::format("precision, {}", name_of(operand)));
  }
  const auto is_corrected = [](const std::optional<QuantSpec>& spec) {
    return spec && spec->scaling == Scaling::eden;
  };
  const bool any_corrected = std::ranges::any_of(result.operands, is_corrected);
  const std::string signs = config_.rht.signs.value_or(any_corrected ? "fresh" : "fixed");
  if (signs == "per-step") result.signs = SignSource::per_step;
  if (signs == "fresh") result.signs = SignSource::fresh;
  TETRAD_CHECK(
      result.signs != SignSource::fresh || !transforms_fprop(result),
      "precision.rht: fresh signs are for dgrad and wgrad, and fprop is transformed here: leave it out "
      "of gemms, or use signs: per-step");
  result.weight_source = source_of(Operand::dgrad_w, result);
  result.input_source = source_of(Operand::wgrad_x, result);
  return result;
}

Source Recipe::source_of(Operand operand, const LinearPrecision& precision) const {
  const bool corrected = precision[operand] && precision[operand]->scaling == Scaling::eden;
  std::string source = corrected && !transforms_fprop(precision) ? "fprop" : "input";
  if (config_.source) source = *config_.source;
  if (const auto said = config_.operands.find(std::string(name_of(operand))); said != config_.operands.end())
    source = said->second.source.value_or(source);
  return source == name_of(Source::fprop) ? Source::fprop : Source::input;
}

Recipe::QuantizedBlocks Recipe::quantized_blocks(std::string_view recipe) const {
  const RecipeTable& base = find_table(recipe);
  const double last_default =
      base.high_last < 1 ? std::ceil(base.high_last * static_cast<double>(blocks_)) : base.high_last;
  const std::int64_t first = config_.high_precision.first.value_or(base.high_first);
  const std::int64_t last = config_.high_precision.last.value_or(static_cast<std::int64_t>(last_default));
  return {first, blocks_ - last};
}

Recipe::Phase Recipe::make_phase(std::string_view forward, std::string_view backward) const {
  Phase phase{.names = {find_table(forward).name, find_table(backward).name},
              .forward = quantized_blocks(forward),
              .backward = quantized_blocks(backward),
              .precisions = {}};
  const LinearPrecision forward_table = table(forward);
  const LinearPrecision backward_table = table(backward);
  TETRAD_CHECK(config_.schedule.empty() || find_table(backward).format || !transforms_fprop(forward_table),
               "precision.schedule: a backward pass in {} reads the operands of the forward pass, which are "
               "transformed here: leave fprop out of rht, or quantize the backward pass too",
               backward);
  const bool reads_fprop =
      backward_table.weight_source == Source::fprop || backward_table.input_source == Source::fprop;
  TETRAD_CHECK(!reads_fprop || !transforms_fprop(forward_table),
               "precision.source: the backward pass cannot read the operands of fprop, which are transformed "
               "here: leave fprop out of rht, or use source: input");
  const auto take = [](LinearPrecision& precision, const LinearPrecision& from,
                       std::initializer_list<Operand> operands) {
    for (const Operand operand : operands) precision[operand] = from[operand];
    precision.signs = from.signs;
  };
  for (std::size_t i = 0; i < phase.precisions.size(); ++i) {
    const Phase::Kind kind{(i & 4) != 0, (i & 2) != 0, (i & 1) != 0, 16 << i / 8};
    LinearPrecision& precision = phase.precision(kind);
    precision.centre = config_.centre;
    if (kind.in_forward) take(precision, forward_table, {Operand::fprop_x, Operand::fprop_w});
    if (kind.in_backward) {
      take(precision, backward_table,
           {Operand::dgrad_dy, Operand::dgrad_w, Operand::wgrad_dy, Operand::wgrad_x});
      precision.weight_source = backward_table.weight_source;
      precision.input_source = backward_table.input_source;
    }
    fit_transforms(precision, kind.transform);
    if (kind.fp8) raise_to_fp8(precision);
    if (config_.source != "input") make_straight_through(precision);
  }
  return phase;
}

void Recipe::fit_transforms(LinearPrecision& precision, int largest) const {
  constexpr std::array kOfDgrad = {Operand::dgrad_dy, Operand::dgrad_w};
  const auto is_said = [&](Operand operand) {
    const auto found = config_.operands.find(std::string(name_of(operand)));
    return found != config_.operands.end() && found->second.hadamard;
  };
  if (config_.rht.size || std::ranges::any_of(kOfDgrad, is_said)) return;
  const auto is_corrected = [&](Operand operand) {
    return precision[operand] && precision[operand]->scaling == Scaling::eden;
  };
  if (std::ranges::none_of(kOfDgrad, is_corrected)) return;
  for (const Operand operand : kOfDgrad)
    if (precision[operand]) precision[operand]->hadamard = std::min(precision[operand]->hadamard, largest);
}

bool Recipe::stays_fp8(const LayerId& layer) const {
  return any_matches(config_.high_precision.fp8, layer.name);
}

const Recipe::Phase& Recipe::phase_at(double progress) const {
  std::size_t phase = 0;
  while (phase < config_.schedule.size() && progress >= config_.schedule[phase].at) ++phase;
  return phases_[phase];
}

const LinearPrecision& Recipe::at(const LayerId& layer, double progress) const {
  const Phase& phase = phase_at(progress);
  const bool named = any_matches(config_.high_precision.match, layer.name);
  const bool in_forward = !named && phase.forward.contains(layer.block);
  const bool in_backward = !named && phase.backward.contains(layer.block);
  const auto transform = static_cast<int>(std::gcd(layer.outputs, std::int64_t{kMaxHadamard}));
  return phase.precision({in_forward, in_backward, stays_fp8(layer), std::max(transform, nvfp4::kBlock)});
}

DType storage_type(const PrecisionConfig& config) {
  return config.storage == "f32" ? DType::f32 : DType::bf16;
}

bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last one seen, and where the text that it swallows ends
  std::size_t swallowed = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      swallowed = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++swallowed;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace tetrad
