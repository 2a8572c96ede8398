// SPDX-License-Identifier: BSD-3-Clause
#include "base/json_text.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs;

TEST_CASE("what is written as JSON is read again, whatever its bytes") {
  for (const char* text : {"", "plain", "caf\xe9", "\xff\xfe", "\\351", "\\134351", "a\nb\"c", "\\",
                           "C:\\new", "\xe2\x82\xac", "half \xe2\x82"}) {
    const nlohmann::json document{{"path", text}, {"all", {text, 1, nullptr, {{text, text}}}}};
    CHECK(json_from_text(json_to_text(document)) == document);
    CHECK(json_from_text(json_to_text(document, 2)) == document);
    CHECK(nlohmann::json::parse(json_to_text(document), nullptr, false).is_object());
  }
}

TEST_CASE("JSON holds a byte that is not UTF-8 in octal, and other names as they are") {
  CHECK(json_to_text(nlohmann::json("caf\xe9")) == R"("caf\\351")");
  CHECK(json_to_text(nlohmann::json(R"(C:\new\351)")) == R"("C:\\new\\134351")");
  CHECK(json_to_text(nlohmann::json("a\nb")) == R"("a\nb")");
  CHECK(json_from_text(R"("a\u005c351")") == nlohmann::json("a\xe9"));
  CHECK(json_from_text("{").is_discarded());
}

TEST_CASE("two keys that differ are two keys") {
  const nlohmann::json document{{"\xe9", 1}, {"\\351", 2}, {"\\134351", 3}};
  CHECK(json_from_text(json_to_text(document)) == document);
}

TEST_CASE(
    "a document that is nested without end is none: copied or written it would use up the stack") {
  for (const std::size_t depth : {100, 400000}) {
    for (const auto& [open, close] : {std::pair{"[", "]"}, {"{\"a\":", "}"}}) {
      std::string text, end;
      for (std::size_t i = 0; i < depth; ++i) {
        text += open, end += close;
      }
      CHECK(json_from_text(text + "\"\\\\351\"" + end).is_discarded());
      CHECK(json_from_text("{\"format\":1,\"deep\":" + text + "1" + end + ",\"after\":2}")
                .is_discarded());
    }
  }
  std::string text = "1";
  for (int i = 0; i < 60; ++i) {
    text = "[" + text + "]";
  }
  CHECK(json_from_text(text).is_array());
}
