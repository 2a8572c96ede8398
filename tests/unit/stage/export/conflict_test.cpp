// SPDX-License-Identifier: BSD-3-Clause
// The conflict table, in every combination of its inputs. The expected rows are written out here
// and not computed.

#include "stage/export/conflict.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <string>
#include <vector>

using namespace efs;
using namespace efs::stage;
using config::Existing;
using config::OnConflict;

namespace {

constexpr std::array versions{PfsVersion::origin_or_none, PfsVersion::same_content,
                              PfsVersion::same_data, PfsVersion::other,
                              PfsVersion::of_another_path};
constexpr std::array all_whose{WhoseCopy::unknown, WhoseCopy::ours, WhoseCopy::of_another_path,
                               WhoseCopy::theirs, WhoseCopy::unsure};
constexpr std::array all_on_conflict{OnConflict::fail, OnConflict::keep_both,
                                     OnConflict::overwrite};
constexpr std::array all_existing{Existing::replace, Existing::fail, Existing::keep_both};

/// A row of the expected table; a field without a value fits every input.
struct Row {
  std::vector<PfsVersion> version{};
  std::vector<WhoseCopy> whose{};
  std::optional<bool> exists{}, is_own{}, is_known_name{}, may_be_nodes{};
  std::optional<OnConflict> on_conflict{};
  std::optional<Existing> existing{};
  Decision expected{};

  template <typename T>
  static bool fits(const std::vector<T>& wanted, T value) {
    return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
  }

  template <typename T>
  static bool fits(std::optional<T> wanted, T value) {
    return !wanted || *wanted == value;
  }

  bool fits(const Encounter& met, const ConflictRules& rules) const {
    return fits(version, met.version) && fits(whose, met.whose) && fits(exists, met.exists) &&
           fits(is_own, met.is_own) && fits(is_known_name, met.is_known_name) &&
           fits(may_be_nodes, met.may_be_nodes) && fits(on_conflict, rules.on_conflict) &&
           fits(existing, rules.existing);
  }
};

template <typename Visit>
void for_each_input(Visit visit) {
  for (const auto version : versions) {
    for (const auto whose : all_whose) {
      for (const auto on_conflict : all_on_conflict) {
        for (const auto existing : all_existing) {
          for (unsigned bits = 0; bits < 32; ++bits) {
            visit(Encounter{.version = version,
                            .whose = whose,
                            .exists = (bits & 1U) != 0,
                            .is_own = (bits & 2U) != 0,
                            .is_known_name = (bits & 4U) != 0,
                            .may_be_nodes = (bits & 8U) != 0,
                            .is_directory = (bits & 16U) != 0},
                  ConflictRules{.on_conflict = on_conflict, .existing = existing});
          }
        }
      }
    }
  }
}

const std::vector<WhoseCopy> sure{WhoseCopy::unknown, WhoseCopy::ours, WhoseCopy::of_another_path,
                                  WhoseCopy::theirs};
const std::vector<PfsVersion> same{PfsVersion::origin_or_none, PfsVersion::same_content};

Decision writes(bool replaces, Obstacle obstacle = Obstacle::none) {
  return {.act = Act::write, .obstacle = obstacle, .replaces = replaces};
}

Decision keeps(Act act, Obstacle obstacle) {
  return {.act = act, .obstacle = obstacle};
}

/// The rows for a file that on-conflict decides about.
void add_conflict(std::vector<Row>& rows, const Row& where, Obstacle obstacle) {
  const std::array<std::pair<OnConflict, Decision>, 3> decisions{
      {{OnConflict::fail, keeps(Act::leave, obstacle)},
       {OnConflict::keep_both, keeps(Act::keep_both, obstacle)},
       {OnConflict::overwrite, writes(true, obstacle)}}};
  for (const auto& [policy, expected] : decisions) {
    Row row = where;
    row.on_conflict = policy;
    row.expected = expected;
    rows.push_back(row);
  }
}

/// The rows for another's file that no record names.
void add_foreign(std::vector<Row>& rows, const Row& where, Obstacle obstacle) {
  const auto add = [&](const Row& row, const Decision& expected) {
    rows.push_back(row);
    rows.back().expected = expected;
  };
  Row row = where;
  row.exists = false;
  add(row, writes(false));
  row.exists = true;
  row.is_own = true;
  add(row, writes(false));
  row.is_own = false;
  row.existing = Existing::replace;
  add(row, writes(true));
  row.may_be_nodes = true;
  for (const auto policy : {Existing::fail, Existing::keep_both}) {
    row.existing = policy;
    add(row, writes(true));
  }
  row.may_be_nodes = false;
  row.existing = Existing::fail;
  add(row, keeps(Act::leave, obstacle));
  row.existing = Existing::keep_both;
  add(row, keeps(Act::keep_both, obstacle));
}

std::vector<Row> expected_rows() {
  std::vector<Row> rows;
  rows.push_back({.version = same, .expected = writes(false)});
  add_foreign(rows, {.version = {PfsVersion::same_data}}, Obstacle::existed);
  for (const auto& [version, changed, unsure, existed] :
       {std::tuple(PfsVersion::other, Obstacle::changed, Obstacle::unsure, Obstacle::existed),
        std::tuple(PfsVersion::of_another_path, Obstacle::of_job, Obstacle::of_job,
                   Obstacle::of_job)}) {
    add_conflict(rows, {.version = {version}, .whose = {WhoseCopy::unsure}}, unsure);
    add_conflict(rows, {.version = {version}, .whose = sure, .is_known_name = true}, changed);
    add_foreign(rows, {.version = {version}, .whose = sure, .is_known_name = false}, existed);
  }
  return rows;
}

}  // namespace

TEST_CASE("the conflict table for results has one row for each input", "[stage][out][conflict]") {
  const auto rows = expected_rows();
  std::size_t inputs = 0;
  for_each_input([&](const Encounter& met, const ConflictRules& rules) {
    ++inputs;
    const Row* found = nullptr;
    std::size_t fitting = 0;
    for (const auto& row : rows) {
      if (row.fits(met, rules)) {
        found = &row;
        ++fitting;
      }
    }
    if (fitting != 1 || decide_result(met, rules) != found->expected) {
      CAPTURE(met.version, met.whose, met.exists, met.is_own, met.is_known_name, met.may_be_nodes,
              rules.on_conflict, rules.existing, fitting);
      FAIL("another decision than the table's");
    }
  });
  CHECK(inputs == 5UL * 5 * 3 * 3 * 32);
}

TEST_CASE("a result that nothing can stop needs no look at the file", "[stage][out][conflict]") {
  for_each_input([](const Encounter& met, const ConflictRules& rules) {
    const bool is_known = met.is_known_name || met.whose == WhoseCopy::unsure;
    if (!may_protect(is_known, rules) && decide_result(met, rules).act != Act::write) {
      CAPTURE(met.version, met.whose, rules.on_conflict, rules.existing);
      FAIL("a file is protected, and nobody looks at it");
    }
  });
}

TEST_CASE("the conflict table for removals", "[stage][out][conflict]") {
  struct Case {
    OnConflict on_conflict;
    bool may_be_nodes, is_directory;
    Decision expected;
  };

  const Obstacle changed = Obstacle::changed, of_node = Obstacle::of_node;
  const std::vector<Case> cases{
      {OnConflict::fail, false, false, keeps(Act::leave, changed)},
      {OnConflict::fail, false, true, keeps(Act::leave, changed)},
      {OnConflict::fail, true, false, keeps(Act::leave, of_node)},
      {OnConflict::fail, true, true, keeps(Act::leave, of_node)},
      {OnConflict::keep_both, false, false, keeps(Act::keep_both, changed)},
      {OnConflict::keep_both, false, true, keeps(Act::keep_both, changed)},
      {OnConflict::keep_both, true, false, keeps(Act::keep_both, changed)},
      {OnConflict::keep_both, true, true, keeps(Act::keep_both, changed)},
      {OnConflict::overwrite, false, false, writes(true, changed)},
      {OnConflict::overwrite, false, true, keeps(Act::leave, changed)},
      {OnConflict::overwrite, true, false, keeps(Act::leave, of_node)},
      {OnConflict::overwrite, true, true, keeps(Act::leave, of_node)},
  };
  for_each_input([&](const Encounter& met, const ConflictRules& rules) {
    Decision expected;
    for (const auto& one : cases) {
      if (!met.is_own && one.on_conflict == rules.on_conflict &&
          one.may_be_nodes == met.may_be_nodes && one.is_directory == met.is_directory) {
        expected = one.expected;
      }
    }
    if (decide_removal(met, rules) != expected) {
      CAPTURE(met.is_own, met.may_be_nodes, met.is_directory, rules.on_conflict);
      FAIL("another decision than the table's");
    }
  });
}

TEST_CASE("a directory that both have changed is the job's only with overwrite",
          "[stage][out][conflict]") {
  for (const auto policy : all_on_conflict) {
    const ConflictRules rules{.on_conflict = policy};
    CHECK(takes_ours(DirectoryMerge::take_ours, rules));
    CHECK_FALSE(takes_ours(DirectoryMerge::same, rules));
    CHECK_FALSE(takes_ours(DirectoryMerge::keep_theirs, rules));
    CHECK(takes_ours(DirectoryMerge::conflict, rules) == (policy == OnConflict::overwrite));
  }
}
