// SPDX-License-Identifier: BSD-3-Clause
#include "control/requests.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "base/json_text.hpp"

namespace efs::control::requests {
namespace {

constexpr std::uint64_t largest = UINT64_MAX;

/// Converts a request to a line of text and back.
template <typename Request>
Request there_and_back(const Request& request) {
  const Json line = json_from_text(json_to_text(to_json(request)));
  CHECK(verb_of(line) == Request::verb);
  return from_json<Request>(line);
}

template <typename Request>
std::string refusal_of(const std::string& line) {
  try {
    (void)from_json<Request>(json_from_text(line));
  } catch (const std::invalid_argument& problem) {
    return problem.what();
  }
  return "";
}

TEST_CASE("a request is the same on the other side", "[control]") {
  const auto round_trip = [](const auto& request) {
    INFO(request.verb);
    CHECK(there_and_back(request) == request);
  };
  const std::vector<std::string> paths{"a", "d/\xff b", ""};
  round_trip(Status{.changed = true});
  round_trip(Wait{.starter = true});
  round_trip(WaitEnd{.keep = true});
  round_trip(Stop{});
  round_trip(Stop{.supervisor = 7,
                  .stage_out = false,
                  .keep = true,
                  .cut_off = true,
                  .merge = true,
                  .receipt = true,
                  .deadline = 2.5,
                  .asked_ago = 0.5});
  round_trip(Load{.paths = paths,
                  .replace = true,
                  .force = true,
                  .backend = "ram",
                  .offset = largest,
                  .size = 3});
  round_trip(Fetch{.paths = paths});
  round_trip(Move{.paths = paths, .to = "disk"});
  round_trip(WaitInputs{.timeout_ms = largest});
  round_trip(WaitInputs{});
  round_trip(Unload{.paths = paths,
                    .as_is = true,
                    .remove = true,
                    .backend = "ram",
                    .offset = 1,
                    .size = largest});
  round_trip(WaitTask{.task = 12, .timeout_ms = {}});
  round_trip(WaitTask{.task = largest, .timeout_ms = 0});
  round_trip(Cancel{.task = 3});
  round_trip(List{});
  round_trip(List{.paths = paths});
  round_trip(Explain{.path = "d/\xff b"});
  round_trip(Set{.file_class = "temporary", .paths = paths});
  round_trip(Pin{.paths = paths, .pinned = false});
  round_trip(Limit{.read = {}, .write = {}, .ops = {}});
  round_trip(Limit{.read = 0, .write = 1, .ops = largest});
}

TEST_CASE("the fields have the names that README.md lists", "[control]") {
  CHECK(to_json(Stop{.deadline = 2}) == Json{{"verb", "stop"},
                                             {"supervisor", 0},
                                             {"stage_out", true},
                                             {"keep", false},
                                             {"cut_off", false},
                                             {"merge", false},
                                             {"receipt", false},
                                             {"deadline", 2.0},
                                             {"asked_ago", 0.0}});
  CHECK(to_json(Load{.paths = {"a"}, .backend = {}}) == Json{{"verb", "load"},
                                                             {"paths", {"a"}},
                                                             {"replace", false},
                                                             {"force", false},
                                                             {"backend", ""},
                                                             {"offset", 0},
                                                             {"size", 0}});
  CHECK(to_json(Unload{.paths = {"a"}, .backend = {}}) == Json{{"verb", "unload"},
                                                               {"paths", {"a"}},
                                                               {"as_is", false},
                                                               {"remove", false},
                                                               {"backend", ""},
                                                               {"offset", 0},
                                                               {"size", 0}});
  CHECK(to_json(Set{.file_class = "default", .paths = {"a"}}) ==
        Json{{"verb", "set"}, {"class", "default"}, {"paths", {"a"}}});
  // what is absent means something else than any number
  CHECK(to_json(WaitTask{.task = 1, .timeout_ms = {}}) == Json{{"verb", "wait-task"}, {"task", 1}});
  CHECK(to_json(Limit{.read = {}, .write = 5, .ops = {}}) == Json{{"verb", "limit"}, {"write", 5}});
  CHECK(to_json(Status{}) == Json{{"verb", "status"}, {"changed", false}});
  CHECK(to_json(Wait{}) == Json{{"verb", "wait"}, {"starter", false}});
  CHECK(to_json(WaitEnd{}) == Json{{"verb", "wait-end"}, {"keep", false}});
  CHECK(to_json(Cancel{.task = 1}) == Json{{"verb", "cancel"}, {"task", 1}});
  CHECK(to_json(Move{.paths = {"a"}, .to = "disk"}) ==
        Json{{"verb", "move"}, {"paths", {"a"}}, {"to", "disk"}});
  CHECK(to_json(List{.paths = {"a"}}) == Json{{"verb", "ls"}, {"paths", {"a"}}});
  CHECK(to_json(Pin{.paths = {"a"}}) == Json{{"verb", "pin"}, {"paths", {"a"}}, {"pinned", true}});
  CHECK(to_json(Explain{.path = "a"}) == Json{{"verb", "explain"}, {"path", "a"}});
}

// tests/cli/control_fuzz_test.sh takes the verbs and their fields from this file.
TEST_CASE("fuzzing begins with every field of every request", "[control]") {
  std::map<std::string, std::set<std::string>> saved;
  std::ifstream lines(EFS_SOURCE_DIR "/tests/fuzz/corpus/control/every-field");
  for (std::string text; std::getline(lines, text);) {
    const Json line = json_from_text(text);
    for (const auto& field : line.items()) {
      saved[verb_of(line)].insert(field.key());
    }
  }
  for_each([&](const auto& request) {
    CAPTURE(request.verb);
    for (const auto& name : field_names(request)) {
      CHECK(saved[request.verb].contains(name));
    }
  });
  CHECK(saved.size() == std::tuple_size_v<All>);
}

TEST_CASE("unknown fields are ignored, and absent ones have their defaults", "[control]") {
  const Json odd{{"verb", "odd"}, {"colour", "red"}};
  CHECK(from_json<Stop>(odd) == Stop{});
  CHECK(from_json<Status>(odd) == Status{});
  CHECK(from_json<Wait>(odd) == Wait{});
  CHECK(from_json<WaitEnd>(odd) == WaitEnd{});
  CHECK(from_json<List>(odd) == List{});
  CHECK(from_json<Limit>(odd) == Limit{});
  CHECK(from_json<Load>({{"paths", Json::array()}}) == Load{});
  CHECK(from_json<Unload>({{"paths", Json::array()}}) == Unload{});
  CHECK(verb_of(Json::object()).empty());
}

TEST_CASE("a field without a default must be there", "[control]") {
  CHECK(refusal_of<Load>("{}") == "paths is missing");
  CHECK(refusal_of<Move>("{}") == "paths is missing");
  CHECK(refusal_of<Move>(R"({"paths": []})") == "to is missing");
  CHECK(refusal_of<Unload>("{}") == "paths is missing");
  CHECK(refusal_of<Pin>("{}") == "paths is missing");
  CHECK(refusal_of<WaitTask>("{}") == "task is missing");
  CHECK(refusal_of<Cancel>("{}") == "task is missing");
  CHECK(refusal_of<Explain>("{}") == "path is missing");
  CHECK(refusal_of<Set>(R"({"paths": []})") == "class is missing");
  CHECK(refusal_of<Set>(R"({"class": "default"})") == "paths is missing");
}

TEST_CASE("a wrong type is refused with the name of the field", "[control]") {
  for (const std::string value :
       {"-1", "1.5", "1e300", "18446744073709551616", "true", "null", "\"1\"", "[]", "{}"}) {
    INFO(value);
    CHECK(refusal_of<Load>(R"({"paths": [], "offset": )" + value + "}") ==
          "offset is not a whole number");
    CHECK(refusal_of<Unload>(R"({"paths": [], "size": )" + value + "}") ==
          "size is not a whole number");
    CHECK(refusal_of<Cancel>(R"({"task": )" + value + "}") == "task is not a whole number");
    CHECK(refusal_of<WaitTask>(R"({"task": 1, "timeout_ms": )" + value + "}") ==
          "timeout_ms is not a whole number");
    CHECK(refusal_of<Stop>(R"({"supervisor": )" + value + "}") ==
          "supervisor is not a whole number");
    CHECK(refusal_of<Limit>(R"({"ops": )" + value + "}") == "ops is not a whole number");
  }
  for (const std::string field : {"stage_out", "keep", "cut_off", "merge", "receipt"}) {
    for (const std::string value : {"1", "null", "\"true\"", "[]"}) {
      CHECK(refusal_of<Stop>("{\"" + field + "\": " + value + "}") ==
            field + " is neither true nor false");
    }
  }
  for (const std::string value : {"true", "null", "\"1\"", "[]"}) {
    CHECK(refusal_of<Stop>(R"({"deadline": )" + value + "}") == "deadline is not a number");
  }
  for (const std::string value : {"1", "null", "\"a\"", "[1]", R"(["a", null])", "{}"}) {
    CHECK(refusal_of<List>(R"({"paths": )" + value + "}") == "paths is not a list of texts");
  }
  for (const std::string value : {"1", "null", "true", "[]"}) {
    CHECK(refusal_of<Explain>(R"({"path": )" + value + "}") == "path is not a text");
    CHECK_THROWS_AS(verb_of(json_from_text(R"({"verb": )" + value + "}")), std::invalid_argument);
  }
}

}  // namespace
}  // namespace efs::control::requests
