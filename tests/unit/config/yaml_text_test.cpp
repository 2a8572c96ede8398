// SPDX-License-Identifier: BSD-3-Clause
#include "config/yaml_text.hpp"

#include <catch2/catch_test_macros.hpp>

#include "config/yaml_tree.hpp"

using namespace efs::config;

TEST_CASE("yaml text: read_yaml returns what was written", "[config]") {
  for (const std::string text : {"",
                                 "a",
                                 "a b",
                                 "null",
                                 "Yes",
                                 "~",
                                 "- a",
                                 "a: b",
                                 "a #b",
                                 "*x",
                                 "[x]",
                                 "{x}",
                                 "!x",
                                 "&x",
                                 "%x",
                                 "@x",
                                 "`x",
                                 "\"q\" 'r' \\",
                                 "line\nbreak\ttab",
                                 "\x7f\x01",
                                 "\xc3\xa4",
                                 "-",
                                 "=",
                                 "a%j$x"}) {
    CAPTURE(text);
    for (const auto& written : {yaml_string(text), yaml_value(text)}) {
      const auto read = read_yaml("key: " + written + "  # comment\n");
      REQUIRE(read);
      REQUIRE(read->items.size() == 2);
      CHECK(read->items[1].text == text);
      CHECK(read->items[1].kind == YamlNode::Kind::scalar);
    }
  }
}

TEST_CASE("yaml text: ordinary paths have no quotes", "[config]") {
  CHECK(yaml_value("/pfs/run-1/a_b.nc") == "/pfs/run-1/a_b.nc");
  CHECK(yaml_value("a b") == "\"a b\"");
}
