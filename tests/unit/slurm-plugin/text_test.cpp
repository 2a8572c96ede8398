// SPDX-License-Identifier: BSD-3-Clause
// The plugin's strings: input from users and programs must neither overflow a buffer nor be
// misread.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "support/temp.hpp"

extern "C" {
#include "slurm-plugin/efs_plugin.h"
}

namespace {

std::string text_of(const std::string& json, const char* key) {
  std::array<char, 64> value{};
  return efs_json_text(json.c_str(), key, value.data(), value.size()) == 0 ? value.data()
                                                                           : "<none>";
}

TEST_CASE("a member of the outermost object is found, and no other", "[slurm-plugin]") {
  CHECK(text_of(R"({"ok":false,"error":"no \"x\"\n there","exit":1})", "error") ==
        "no \"x\"\n there");
  CHECK(text_of(R"({"receipt":{"error":"inner"},"list":[{"error":"deep"}],"error":"outer"})",
                "error") == "outer");
  CHECK(text_of(R"({"text":"\"error\":\"fake\"","error":"real"})", "error") == "real");
  CHECK(text_of(R"({"key":"error","other":"x"})", "error") == "<none>");
  CHECK(text_of(R"({"error":5})", "error") == "<none>");
  CHECK(text_of("", "error") == "<none>");
  CHECK(text_of("usage: efs", "error") == "<none>");
  CHECK(text_of(R"({"error":")" + std::string(1000, 'a') + "\"}", "error") == std::string(63, 'a'));
}

std::string value_of(const std::string& json, const char* key) {
  std::array<char, 64> value{};
  return efs_json_value(json.c_str(), key, value.data(), value.size()) == 0 ? value.data()
                                                                            : "<none>";
}

std::string item_of(const std::string& json, const char* key, unsigned number) {
  std::array<char, 64> value{};
  return efs_json_item(json.c_str(), key, number, value.data(), value.size()) == 0 ? value.data()
                                                                                   : "<none>";
}

TEST_CASE("members of any kind come whole, or not at all", "[slurm-plugin]") {
  const std::string json =
      R"({"a":{"n":[1,{"x":"}]"}],"t":"\\"}, "n" : -12.5e3 ,)"
      R"("t":true,"s":"a,b","l":[ {"p":"x,]"} , 2,[3,4],"z"],"e":[],"last":7})";
  CHECK(value_of(json, "a") == R"({"n":[1,{"x":"}]"}],"t":"\\"})");
  CHECK(value_of(json, "n") == "-12.5e3");
  CHECK(value_of(json, "t") == "true");
  CHECK(value_of(json, "s") == R"("a,b")");
  CHECK(value_of(json, "last") == "7");
  CHECK(value_of(json, "x") == "<none>");
  CHECK(value_of(R"({"a":")" + std::string(64, 'x') + "\"}", "a") == "<none>");
  CHECK(item_of(json, "l", 0) == R"({"p":"x,]"})");
  CHECK(item_of(json, "l", 1) == "2");
  CHECK(item_of(json, "l", 2) == "[3,4]");
  CHECK(item_of(json, "l", 3) == R"("z")");
  CHECK(item_of(json, "l", 4) == "<none>");
  CHECK(item_of(json, "e", 0) == "<none>");
  CHECK(item_of(json, "a", 0) == "<none>");
  for (std::size_t length = 0; length < json.size(); ++length) {
    const std::string cut = json.substr(0, length);
    for (const char* key : {"a", "n", "s", "l"}) {
      CHECK((value_of(cut, key) == "<none>" || value_of(cut, key) == value_of(json, key)));
    }
    for (unsigned i = 0; i < 5; ++i) {
      CHECK((item_of(cut, "l", i) == "<none>" || item_of(cut, "l", i) == item_of(json, "l", i)));
    }
  }
}

TEST_CASE("what is cut off or garbled is survived", "[slurm-plugin]") {
  const auto seed = efs::test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::string whole = R"({"a":[{"b":"\u00e4\"\\"}],"error":"x\ty","z":{}})";
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    (void)text_of(whole.substr(0, length), "error");
  }
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string garbled = whole;
    for (int n = 0; n < 3; ++n) {
      garbled[random() % garbled.size()] = static_cast<char>(random() % 255 + 1);
    }
    found += text_of(garbled, "error") != "<none>" ? 1 : 0;
    (void)value_of(garbled, "z");
    (void)item_of(garbled, "a", random() % 3);
  }
  CHECK(found > 0);
  CHECK(found < 20'000);
}

TEST_CASE("what is quoted is JSON and comes back the same", "[slurm-plugin]") {
  const std::string hostile = "a\"b\\c\nd\te\x01 \x7f %s $(x) '";
  std::array<char, 256> quoted{}, back{};
  efs_json_quote(hostile.c_str(), quoted.data(), quoted.size());
  CHECK(nlohmann::json::parse(quoted.data()).get<std::string>() == hostile);
  const std::string plain = "a\"b\\c d";
  efs_json_quote(plain.c_str(), quoted.data(), quoted.size());
  REQUIRE(efs_json_text((std::string("{\"text\":") + quoted.data() + "}").c_str(), "text",
                        back.data(), back.size()) == 0);
  CHECK(back.data() == plain);
  efs_json_quote("\xc3\xa4 \xff \xc3", quoted.data(), quoted.size());
  CHECK(nlohmann::json::parse(quoted.data()).get<std::string>() == "\xc3\xa4 ? ?");
  for (std::size_t size = 16; size < 40; ++size) {
    std::string small(size, 'x');
    efs_json_quote(std::string(100, '\n').c_str(), small.data(), size);
    CHECK(nlohmann::json::accept(small.c_str()));
  }
}

TEST_CASE("copies are whole or nothing; lines are one line", "[slurm-plugin]") {
  std::array<char, 4> small{};
  CHECK(efs_copy(small.data(), small.size(), "abc") == 0);
  CHECK(efs_copy(small.data(), small.size(), "abcd") != 0);
  CHECK(std::string(small.data()).empty());
  CHECK(efs_format(small.data(), small.size(), "%d", 1234) != 0);
  std::string lines = "one\ntwo\x1b[31m\n\n";
  efs_one_line(lines.data());
  CHECK(std::string(lines.c_str()) == "one;two?[31m");
}

TEST_CASE("names of what is kept cannot lead anywhere", "[slurm-plugin]") {
  for (const char* good : {"a", "run12", "a.b_c-d", "0", "abcdefghijklmnopqrstuvwxyz012345"}) {
    CHECK(efs_is_kept_name(good) == 1);
  }
  for (const char* bad : {"", ".", "..", "-a", "_a", "a/b", "../a", "a b", "a\n", "\xc3\xa4",
                          "abcdefghijklmnopqrstuvwxyz0123456"}) {
    CHECK(efs_is_kept_name(bad) == 0);
  }
}

TEST_CASE("flags are found as whole words", "[slurm-plugin]") {
  std::array<char, 33> value{};
  const auto flag = [&](const char* flags, const char* key) {
    return efs_flag(flags, key, value.data(), value.size()) == 1 ? std::string(value.data())
                                                                 : "<none>";
  };
  CHECK(flag("no-stage-out keep=a attach=b", "keep=") == "a");
  CHECK(flag("keep=a attach=b", "attach=") == "b");
  CHECK(flag("  in-job  keep=a.b-c ", "keep=") == "a.b-c");
  CHECK(flag("upkeep=a", "keep=") == "<none>");
  CHECK(flag("keep", "keep=") == "<none>");
  CHECK(flag("", "keep=") == "<none>");
  // too long for a name
  CHECK(flag(("keep=" + std::string(33, 'a')).c_str(), "keep=") == "<none>");
}

TEST_CASE("a word is not the value of another flag", "[slurm-plugin]") {
  CHECK(efs_has_word("no-stage-out ", "no-stage-out") == 1);
  CHECK(efs_has_word("in-job keep=a", "in-job") == 1);
  CHECK(efs_has_word("keep=a  in-job", "in-job") == 1);
  for (const char* flags : {"", "keep=no-stage-out", "no-stage-outs", "xno-stage-out", "no-stage",
                            " attach=no-stage-out keep=no-stage-out"}) {
    CHECK(efs_has_word(flags, "no-stage-out") == 0);
  }
}

}  // namespace
