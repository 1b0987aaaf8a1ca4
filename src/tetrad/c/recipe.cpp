// SPDX-License-Identifier: Apache-2.0
#include "tetrad/recipe/recipe.h"

#include "tetrad/c/boundary.h"
#include "tetrad/config/config.h"

using namespace tetrad;  // NOLINT(google-build-using-namespace): everything here is ours

struct tetrad_recipe {
  Recipe recipe;
};

tetrad_status tetrad_precision_from_recipe(const char* recipe, tetrad_precision** out) {
  return c::guarded([&] {
    tetrad_precision*& result = c::required(out, "out");
    PrecisionConfig config;
    config.recipe = &c::required(recipe, "recipe");
    config.high_precision.first = 0;  // which layers are quantized is the caller's business
    config.high_precision.last = 0;
    result = new tetrad_precision{Recipe(config, 1).at({"linear", 0}, 0.0)};
  });
}

tetrad_status tetrad_recipe_parse(const char* text, int64_t blocks, tetrad_recipe** out) {
  return c::guarded([&] {
    tetrad_recipe*& result = c::required(out, "out");
    TETRAD_CHECK(blocks >= 0, "recipe: a model of {} blocks", blocks);
    const std::string said = &c::required(text, "text");
    TETRAD_CHECK(said.find_first_not_of(" \n") != std::string::npos,
                 "recipe: the text is empty: give a name");
    Config config = parse_config("precision: " + said, "recipe");
    validate(config.precision);
    result = new tetrad_recipe{Recipe(std::move(config.precision), blocks)};
  });
}

void tetrad_recipe_free(tetrad_recipe* recipe) { delete recipe; }

tetrad_status tetrad_precision_of_layer(const tetrad_recipe* recipe, const tetrad_layer* layer,
                                        tetrad_precision** out) {
  return c::guarded([&] {
    tetrad_precision*& result = c::required(out, "out");
    const Recipe& known = c::required(recipe, "recipe").recipe;
    const tetrad_layer where = c::read_struct(layer, "layer");
    TETRAD_CHECK(where.out_features >= 0, "layer: {} outputs", where.out_features);
    TETRAD_CHECK(where.progress >= 0 && where.progress <= 1, "layer: progress {} is not within 0 and 1",
                 where.progress);
    const LayerId id{&c::required(where.name, "layer: name"), where.block, where.out_features};
    result = new tetrad_precision{known.at(id, where.progress)};
  });
}

tetrad_status tetrad_precision_token_multiple(const tetrad_precision* precision, int64_t* multiple) {
  return c::guarded([&] {
    const LinearPrecision& known = c::required(precision, "precision").precision;
    int64_t& result = c::required(multiple, "multiple");
    result = 1;
    for (const Operand operand : {Operand::wgrad_dy, Operand::wgrad_x}) {
      if (!known[operand]) continue;
      constexpr int64_t kGroup = RandomStream::kGroup;
      result = std::max({result, kGroup, int64_t{known[operand]->hadamard}});
    }
  });
}

tetrad_status tetrad_precision_describe(const tetrad_precision* precision, char* text, size_t size,
                                        size_t* needed) {
  return c::guarded([&] {
    const std::string line = describe(c::required(precision, "precision").precision, "bf16");
    if (needed != nullptr) *needed = line.size() + 1;
    if (size == 0) return;
    char* const end = std::copy_n(line.begin(), std::min(line.size(), size - 1), &c::required(text, "text"));
    *end = '\0';
  });
}
