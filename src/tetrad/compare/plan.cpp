// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <set>
#include <span>
#include <string_view>

#include "tetrad/config/parse.h"
#include "tetrad/config/scalar.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

using config::Node;

constexpr std::int64_t kMostTrials = 1000;

/// Fit for the name of a folder.
void check_name(const std::string& name, const std::string& where) {
  const bool sound =
      !name.empty() && name.size() <= 64 && name[0] != '.' && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("._+-").find(static_cast<char>(c)) != std::string_view::npos;
      });
  TETRAD_CHECK(sound,
               "{}: the name {} names a folder, so it may only have letters, digits and . _ + -, at most 64",
               where, config::shown(name));
}

/// What arms and mixes may change: keys, with all that is below them.
using Keys = std::span<const std::string_view>;
constexpr std::array<std::string_view, 2> kArmKeys = {"precision", "optim.moments"};
constexpr std::array<std::string_view, 1> kMixKeys = {"data"};

bool is_within(const std::string& key, std::string_view section) {
  return key == section || key.starts_with(std::string(section) + ".");
}
bool is_within_one_of(const std::string& key, Keys sections) {
  return std::ranges::any_of(sections, [&](std::string_view section) { return is_within(key, section); });
}

/// {precision.rht: none} or {precision: {rht: none}} to "precision.rht=none"; `above` is the key of the node.
void read_overrides(const Node& node, const std::string& above, Keys keys,
                    std::vector<std::string>& overrides) {
  TETRAD_CHECK(node.is(Node::Kind::map), "{}: expected changes to the configuration, such as {{{}: …}}",
               node.origin, keys[0]);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    const std::string key = above + node.names[i];
    const Node& value = node.children[i];
    const bool is_free = is_within_one_of(key, keys);
    const bool has_free =
        std::ranges::any_of(keys, [&](std::string_view own) { return is_within(std::string(own), key); });
    TETRAD_CHECK(is_free || (has_free && value.is(Node::Kind::map)),
                 "{}: {} must be the same in every run of a comparison: here only {} can change",
                 value.origin, config::shown(key), fmt::join(keys, " and "));
    if (is_free)
      overrides.push_back(key + "=" + config::flow_text(value));
    else
      read_overrides(value, key + ".", keys, overrides);
  }
}

std::vector<NamedOverrides> read_named(const Node& node, Keys keys) {
  TETRAD_CHECK(node.is(Node::Kind::map) && !node.names.empty(), "{}: expected names, each with its changes",
               node.origin);
  std::vector<NamedOverrides> result;
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    check_name(node.names[i], node.children[i].origin);
    result.push_back({node.names[i], {}});
    if (!node.children[i].is(Node::Kind::null))
      read_overrides(node.children[i], "", keys, result.back().overrides);
  }
  return result;
}

std::vector<double> read_factors(const Node& node, const std::string& name) {
  if (!node.is(Node::Kind::list)) return {config::read_real(node, name, config::above(0))};
  std::vector<double> values;
  for (const Node& child : node.children) values.push_back(config::read_real(child, name, config::above(0)));
  TETRAD_CHECK(!values.empty(), "{}: {} is empty", node.origin, name);
  return values;
}

const Node& member(const Node& map, const std::string& name) {
  const Node* found = map.is(Node::Kind::map) ? map.find(name) : nullptr;
  TETRAD_CHECK(found != nullptr, "{}: {} is missing", map.origin, name);
  return *found;
}

Windows read_windows(const Node& node) {
  TETRAD_CHECK(node.is(Node::Kind::map),
               "{}: expected windows such as {{first: 100, last: 0.1, primary: last}}", node.origin);
  Windows windows;
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    const std::string& name = node.names[i];
    const Node& value = node.children[i];
    if (name == "first")
      windows.first = config::read_whole(value, name, config::at_least(1));
    else if (name == "last")
      windows.last = config::read_real(value, name, {.min = 0, .max = 1, .above_min = true});
    else if (name == "primary")
      windows.primary = config::read_string(value, name, config::one_of({"heldout", "last", "first"}));
    else
      fail("{}: {} is not a window; valid keys: first, last, primary", value.origin, config::shown(name));
  }
  return windows;
}

std::vector<GivenTrunk> read_trunks(const Node& node) {
  TETRAD_CHECK(node.is(Node::Kind::list), "{}: expected a list of checkpoints", node.origin);
  std::vector<GivenTrunk> trunks;
  for (const Node& one : node.children) {
    const auto text = [&](const char* name) { return config::read_string(member(one, name), name, {}); };
    trunks.push_back({{text("run"), config::read_whole(member(one, "step"), "step", config::at_least(0)),
                       text("sha256"), text("checkpoint")},
                      config::read_unsigned(member(one, "seed"), "seed")});
  }
  return trunks;
}

std::string trunk_text(const GivenTrunk& trunk) {
  Node node = Node::map();
  node.add("checkpoint", Node::scalar(trunk.point.checkpoint, true));
  node.add("run", Node::scalar(trunk.point.run, true));
  node.add("step", Node::scalar(fmt::to_string(trunk.point.step)));
  node.add("sha256", Node::scalar(trunk.point.sha256, true));
  node.add("seed", Node::scalar(fmt::to_string(trunk.seed)));
  return config::flow_text(node);
}

std::vector<std::int64_t> read_counts(const Node& node, const std::string& name) {
  TETRAD_CHECK(node.is(Node::Kind::list), "{}: expected a list of whole numbers", node.origin);
  std::vector<std::int64_t> values;
  for (const Node& child : node.children)
    values.push_back(config::read_whole(child, name, config::at_least(1)));
  return values;
}

std::vector<std::string> read_probes(const Node& node, const std::string& name) {
  TETRAD_CHECK(node.is(Node::Kind::list), "{}: expected a list of {}, or none", node.origin,
               fmt::join(kProbes, ", "));
  const std::vector<std::string> choices = probe_choices();
  std::vector<std::string> probes;
  for (const Node& child : node.children)
    probes.push_back(config::read_string(child, name, config::one_of({choices.begin(), choices.end()})));
  return probes;
}

void read_member(const std::string& name, const Node& node, ComparePlan& plan) {
  if (name == "arms") {
    plan.arms = read_named(node, kArmKeys);
  } else if (name == "mixes") {
    plan.mixes = read_named(node, kMixKeys);
  } else if (name == "seeds") {
    plan.seeds = config::read_whole(node, name,
                                    {.min = 0, .max = static_cast<double>(kMostTrials), .above_min = true});
  } else if (name == "lr_factors") {
    plan.lr_factors = read_factors(node, name);
  } else if (name == "margin") {
    plan.margin = config::read_real(node, name, config::above(0));
  } else if (name == "alpha") {
    plan.alpha = config::read_real(node, name, config::above(0));
  } else if (name == "looks") {
    plan.looks = config::read_whole(node, name, config::between(1, 100));
  } else if (name == "looked") {
    plan.looked = read_counts(node, name);
  } else if (name == "trunk_steps") {
    plan.trunk_steps = config::read_whole(node, name, config::count());
  } else if (name == "trunks") {
    plan.trunks = read_trunks(node);
  } else if (name == "windows") {
    plan.windows = read_windows(node);
  } else if (name == "probes") {
    plan.probes = read_probes(node, name);
  } else if (name == "light") {
    plan.light = config::read_bool(node, name);
  } else {
    fail(
        "{}: {} is not a key of a comparison; valid keys: arms, seeds, lr_factors, mixes, margin, alpha, "
        "looks, "
        "trunk_steps, windows, probes, light",
        node.origin, config::shown(name));
  }
}

ComparePlan plan_of_recipes(const std::string& list) {
  ComparePlan plan;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string recipe = list.substr(begin, end - begin);
    check_name(recipe, "--arms");
    plan.arms.push_back({recipe, {"precision.recipe=" + recipe}});
    begin = end + 1;
  }
  return plan;
}

}  // namespace

std::vector<std::string> probe_choices() {
  std::vector<std::string> choices(kProbes.begin(), kProbes.end());
  choices.emplace_back("none");
  return choices;
}

bool arms_may_differ_in(const std::string& key) { return is_within_one_of(key, kArmKeys); }

void check_plan(const ComparePlan& plan) {
  std::set<std::string> names;
  for (const NamedOverrides& arm : plan.arms)
    TETRAD_CHECK(names.insert(arm.name).second, "two arms are called {}", arm.name);
  TETRAD_CHECK(!plan.arms.empty(), "a comparison needs arms");
  TETRAD_CHECK(plan.seeds >= 1, "a comparison needs at least one seed");
  TETRAD_CHECK(plan.alpha < 0.5, "alpha {} is the probability of a wrong verdict: below 0.5", plan.alpha);
  TETRAD_CHECK(plan.trunk_steps == 0 || plan.trunks.empty(),
               "trunks are trained (trunk_steps) or given (--branch), not both");
  TETRAD_CHECK(
      plan.has_trunks() || plan.windows.primary != "first",
      "the first steps after a branch need trunks: say trunk_steps, or choose another primary window");
  for (const GivenTrunk& trunk : plan.trunks)
    for (const GivenTrunk& other : plan.trunks) {
      TETRAD_CHECK(
          trunk.point.step == other.point.step,
          "{} is at step {} and {} at step {}: trunks of one comparison repeat each other, so they must be "
          "equally long",
          trunk.point.checkpoint, trunk.point.step, other.point.checkpoint, other.point.step);
      TETRAD_CHECK(
          &trunk == &other || trunk.seed != other.seed,
          "{} and {} are both of seed {}: trunks of one comparison repeat each other with other seeds",
          trunk.point.checkpoint, other.point.checkpoint, trunk.seed);
    }
  const auto trials =
      static_cast<std::int64_t>(plan.arms.size() * plan.lr_factors.size() * plan.mixes.size());
  TETRAD_CHECK(plan.pairs() <= kMostTrials / trials, "{} times {} seeds are more than {} runs", trials,
               plan.pairs(), kMostTrials);
}

ComparePlan parse_plan(const std::string& yaml, const std::string& name) {
  ComparePlan plan;
  const Node root = config::parse_yaml(yaml, name);
  for (std::size_t i = 0; i < root.names.size(); ++i) read_member(root.names[i], root.children[i], plan);
  check_plan(plan);
  return plan;
}

ComparePlan read_plan(const std::string& text) {
  if (text.ends_with(".yaml") || text.ends_with(".yml")) return parse_plan(config::read_text(text), text);
  ComparePlan plan = plan_of_recipes(text);
  check_plan(plan);
  return plan;
}

std::string to_yaml(const ComparePlan& plan) {
  const auto named = [](const std::vector<NamedOverrides>& all) {
    std::string text;
    for (const NamedOverrides& one : all) {
      fmt::format_to(std::back_inserter(text), "  {}: {{", one.name);
      for (std::size_t i = 0; i < one.overrides.size(); ++i) {
        const std::size_t equals = one.overrides[i].find('=');
        fmt::format_to(std::back_inserter(text), "{}{}: {}", i == 0 ? "" : ", ",
                       one.overrides[i].substr(0, equals), one.overrides[i].substr(equals + 1));
      }
      text += "}\n";
    }
    return text;
  };
  std::string text = fmt::format("seeds: {}\nlr_factors: [{}]\nmargin: {}\nalpha: {}\narms:\n{}", plan.seeds,
                                 fmt::join(plan.lr_factors, ", "), plan.margin, plan.alpha, named(plan.arms));
  if (plan.mixes != ComparePlan().mixes) text += "mixes:\n" + named(plan.mixes);
  const Windows& windows = plan.windows;
  text += fmt::format("windows: {{first: {}, last: {}, primary: {}}}\nlooks: {}\n", windows.first,
                      windows.last, windows.primary, plan.looks);
  if (!plan.looked.empty()) text += fmt::format("looked: [{}]\n", fmt::join(plan.looked, ", "));
  if (plan.trunk_steps > 0) text += fmt::format("trunk_steps: {}\n", plan.trunk_steps);
  if (!plan.probes.empty()) text += fmt::format("probes: [{}]\n", fmt::join(plan.probes, ", "));
  if (plan.light) text += "light: true\n";
  if (!plan.trunks.empty()) text += "trunks:\n";
  for (const GivenTrunk& trunk : plan.trunks) text += "  - " + trunk_text(trunk) + "\n";
  return text;
}

}  // namespace tetrad
