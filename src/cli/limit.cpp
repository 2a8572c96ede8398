// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>

#include "base/text.hpp"
#include "cli/cli.hpp"
#include "config/keys.hpp"

namespace efs::cli {
namespace {

using control::replies::Limits;
using control::requests::Limit;

struct Name {
  const char* text;
  std::optional<std::uint64_t> Limit::* asked;
  std::uint64_t Limits::* answered;
};

constexpr std::array names{Name{"read", &Limit::read, &Limits::read},
                           Name{"write", &Limit::write, &Limits::write},
                           Name{"ops", &Limit::ops, &Limits::ops}};

// Adds "read=500MB/s" or "ops=none" to the request.
Status add(Limit& request, const std::string& word) {
  const auto equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const auto* const found = std::ranges::find(names, name, &Name::text);
  if (equals == std::string::npos || found == names.end()) {
    return fail(EINVAL, "\"" + word +
                            "\" is no limit: write read=RATE, write=RATE or ops=NUMBER, "
                            "such as read=500MB/s, or none");
  }
  const std::string text = word.substr(equals + 1);
  const auto rate =
      text == "none" ? Result<std::uint64_t>(0) : config::parse_setting("limit-" + name, text);
  if (!rate) {
    return std::unexpected(rate.error());
  }
  request.*found->asked = *rate;
  return {};
}

std::string shown(const char* name, std::uint64_t rate) {
  if (rate == 0) {
    return "none";
  }
  return (std::string_view(name) == "ops" ? std::to_string(rate) : format_bytes(rate)) + "/s";
}

}  // namespace

int limit(World& world, const FileArguments& a) {
  Limit request;
  for (const auto& word : a.paths) {
    if (const Status added = add(request, word); !added) {
      return report(world, added.error());
    }
  }
  const auto instance = find_instance(a.instance);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer = ask(*instance, to_json(request));
  if (!answer) {
    return report(world, answer.error());
  }
  if (world.json) {
    print_document(world, *answer);
    return exit_good;
  }
  const auto limits = control::replies::from_json<control::replies::LimitsSet>(*answer).limits;
  for (const auto& name : names) {
    std::cout << name.text << " " << shown(name.text, limits.*name.answered) << "\n";
  }
  return exit_good;
}

}  // namespace efs::cli
