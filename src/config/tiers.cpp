// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string>
#include <vector>

#include "config/validate.hpp"

namespace efs::config {
namespace {

void read_order(const Value& order, JobConfig& config, ProblemList& problems) {
  const auto words = order.words.empty() ? std::vector{order.text} : order.words;
  if (words.size() < 2) {
    problems.add(order.mark, "'order' of 'tiers' names one backend only",
                 "name two or more, the fastest first: order: [memory, disk]");
  }
  for (const auto& word : words) {
    Section one;
    one.values["order"] = {.text = word, .mark = order.mark};
    const auto place = find_backend(config, read_backend_id(one, "order", "", config, problems));
    if (!place) {
      continue;
    }
    if (std::ranges::find(config.tiers.order, *place) != config.tiers.order.end()) {
      problems.add(order.mark, "'order' of 'tiers' names the backend " + in_quotes(word) + " twice",
                   "remove one");
    }
    config.tiers.order.push_back(*place);
  }
}

}  // namespace

void read_tiers(const Section& section, JobConfig& config, ProblemList& problems) {
  read_keys(section, tier_keys(), config.tiers, problems);
  if (const auto* order = section.require("order", problems)) {
    read_order(*order, config, problems);
  }
  if (config.tiers.low >= config.tiers.high) {
    problems.add(section.mark_of("low"),
                 "'low' of 'tiers' is " + std::to_string(config.tiers.low) + "%, and 'high' is " +
                     std::to_string(config.tiers.high) + "%",
                 "'low' must be less: contents go down from high to low");
  }
}

}  // namespace efs::config
