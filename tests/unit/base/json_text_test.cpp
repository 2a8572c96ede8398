#include "base/json_text.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs;

TEST_CASE("what is written as JSON is read again, whatever its bytes") {
  for (const char* text : {"", "plain", "caf\xe9", "\xff\xfe", "\\351", "\\134351", "a\nb\"c", "\\", "C:\\new", "\xe2\x82\xac", "half \xe2\x82"}) {
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

TEST_CASE("a document that is nested without end is no danger") {
  const std::size_t depth = 400000;
  const nlohmann::json read = json_from_text(std::string(depth, '[') + "\"\\\\351\"" + std::string(depth, ']'));
  CHECK(read.is_array());
}
