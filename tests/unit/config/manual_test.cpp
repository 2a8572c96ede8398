// SPDX-License-Identifier: BSD-3-Clause
// The manual and the schema of the configuration have the same keys.
#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "config/document.hpp"

using namespace efs::config;

namespace {

using Keys = std::map<std::string, std::set<std::string>>;

// Returns the terms (.TP) of each section (.SH) of a page: every bold word before the "(...)" of a
// term.
Keys keys_of(std::istream& page) {
  Keys keys;
  std::string section;
  bool term = false;
  int indent = 0;  // terms within a term (.RS) are values, not keys
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(".SH ")) {
      section = line.substr(4), indent = 0;
    }
    if (line.starts_with(".SS ")) {
      section += " " + line.substr(4);
    }
    if (line == ".RS") {
      ++indent;
    }
    if (line == ".RE") {
      --indent;
    }
    if (term && indent == 0 && line.starts_with(".B")) {
      const auto start = line.find(' ') + 1;
      keys[section].insert(line.substr(start, line.find(' ', start) - start));
    }
    term = line == ".TP";
  }
  return keys;
}

Keys keys_of_page(const std::string& name) {
  std::ifstream page(std::string(EFS_SOURCE_DIR) + "/man/" + name);
  REQUIRE(page);
  return keys_of(page);
}

std::set<std::string> schema_of(std::string_view section) {
  for (const auto& entry : schema()) {
    if (entry.section == section) {
      return {entry.keys.begin(), entry.keys.end()};
    }
  }
  FAIL("no section " << section);
  return {};
}

}  // namespace

TEST_CASE("the comparison sees keys and no values") {
  std::istringstream page(
      ".SH A\n.TP\n.BR one \" (x)\"\ntext\n.TP\n.B two\n.RS\n.TP\n.B value\n.RE\n.SH B\n.TP\n.B "
      "three\n");
  const auto keys = keys_of(page);
  CHECK(keys.at("A") == std::set<std::string>{"one", "two"});
  CHECK(keys.at("B") == std::set<std::string>{"three"});
}

TEST_CASE("efs-job(5) has every key of a job file, and no other") {
  const auto page = keys_of_page("efs-job.5");
  CHECK(page.at("GLOBAL-SETTINGS") == schema_of("global-settings"));
  CHECK(page.at("BACKENDS") == schema_of("backends"));
  CHECK(page.at("TIERS") == schema_of("tiers"));
  CHECK(page.at("RESOURCES") == schema_of("resources"));
  CHECK(page.at("OUTPUTS") == schema_of("outputs"));
}

TEST_CASE("efs-site(5) has every key of a site file, and no other") {
  CHECK(keys_of_page("efs-site.5").at("KEYS") == schema_of("site file"));
  std::ifstream file(std::string(EFS_SOURCE_DIR) + "/man/efs-site.5");
  std::ostringstream text;
  text << file.rdbuf();
  for (const auto& key : schema_of("site limits")) {
    CHECK(text.str().contains("\n.BR " + key + " \""));
  }
}
