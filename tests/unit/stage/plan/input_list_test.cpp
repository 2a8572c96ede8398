// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/input_list.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace efs::stage;

namespace {

std::string inputs(const std::string& text, const std::string& root = "/pfs/run") {
  std::string said;
  for (const auto& input : parse_list(text, root).inputs) {
    said += std::to_string(input.line) + ":" + input.path + " ";
  }
  return said;
}

std::string problem(const std::string& line) {
  const auto list = parse_list("fine\n" + line + "\n", "/pfs/run", "/mnt");
  if (list.problems.size() != 1) {
    return "(" + std::to_string(list.problems.size()) + " problems)";
  }
  return std::to_string(list.problems[0].line) + ": " + list.problems[0].reason;
}

}  // namespace

TEST_CASE("a list has a path in each line, comments and blank lines", "[stage][list]") {
  CHECK(inputs("").empty());
  CHECK(inputs("a\n\n# b\n  c/d/  # e\nf#g\n/pfs/run/x\n") == "1:a 4:c/d 5:f#g 6:x ");
  CHECK(inputs("a") == "1:a ");  // the last line has no end
  CHECK(inputs("./a//b/.\n.\n/pfs/run\n/pfs/run/\n") == "1:a/b 2: 3: 4: ");
  CHECK(inputs("\"a b\"\n\"#c\"\n\"d\\\"e\\\\f\"\t# g\n*\n") == "1:a b 2:#c 3:d\"e\\f 4:* ");
  CHECK(inputs("/a\n", "/") == "1:a ");
}

TEST_CASE("a line of a list may have a destination", "[stage][list]") {
  const auto list = parse_list("a b\n/pfs/run/c /mnt/d/e\n\"f g\" \"h i\"  # j\nk ./k/\n. all\n",
                               "/pfs/run", "/mnt");
  CHECK(list.problems.empty());
  std::string said;
  for (const auto& input : list.inputs) {
    said += input.path + ">" + input.as + " ";
  }
  CHECK(said == "a>b c>d/e f g>h i k> >all ");
  const auto in_place = parse_list("a a\nb c\n", "/pfs/run", "/mnt", true);
  REQUIRE(in_place.problems.size() == 1);
  CHECK(in_place.problems[0].line == 2);
  CHECK(in_place.problems[0].reason.starts_with("the destination c does not go with in-place"));
}

TEST_CASE("what is no path below root-dir is refused, with its line", "[stage][list]") {
  CHECK(problem("a b c").starts_with("2: names a third path"));
  CHECK(problem("\"a b\" c d").starts_with("2: names a third path"));
  CHECK(problem("a ../b").starts_with("2: the destination ../b holds '..'"));
  CHECK(problem("a /pfs/run/b")
            .starts_with("2: the destination /pfs/run/b is not below mount-dir /mnt"));
  CHECK(problem("a /mnt/").starts_with("2: the destination /mnt/ is the mount point itself"));
  CHECK(problem("a \"\"").starts_with("2: an empty path"));
  CHECK(problem("\"a").starts_with("2: a quote is not closed"));
  CHECK(problem("\"a\\\"").starts_with("2: a quote is not closed"));
  CHECK(problem("\"a\"b").starts_with("2: something follows"));
  CHECK(problem("\"\"").starts_with("2: an empty path"));
  CHECK(problem("..").starts_with("2: .. holds '..'"));
  CHECK(problem("a/../../b").starts_with("2: a/../../b holds '..'"));
  CHECK(problem("/pfs/runs/a").starts_with("2: /pfs/runs/a is not below root-dir"));
  CHECK(problem("/etc/passwd").starts_with("2: /etc/passwd is not below root-dir"));
  CHECK(problem("a\xc2\xa0").starts_with("2: holds a no-break space, U+00A0, at column 2"));
  CHECK(problem("a \xe2\x80\x8b"
                "b")
            .starts_with("2: holds a zero-width space, U+200B, at column 3"));
  CHECK(problem(std::string("a\0b", 3)).starts_with("2: holds a NUL"));
  CHECK(problem(std::string(256, 'n')).ends_with("255 bytes"));
  std::string deep;
  for (int i = 0; i < 3000; ++i) {
    deep += "a/";
  }
  CHECK(problem(deep).ends_with("than a path can be"));
}

TEST_CASE("a list that is no list does not flood the plan", "[stage][list]") {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "a b c\n";
  }
  const auto list = parse_list(text, "/pfs");
  CHECK(list.problems.size() == 21);
  CHECK(list.problems.back().reason == "980 more lines like those before");
}

TEST_CASE(
    "a byte order mark and the line ends of Windows are no part of a path, and quotes keep what is "
    "not seen",
    "[stage][list]") {
  const auto list = parse_list(
      "\xef\xbb\xbf"
      "a\r\n\r\n# no\xc2\xa0\r\n\"b\xc2\xa0\" c\r\nd\xc2\xa0"
      "e\r\n\"f\r\"",
      "/pfs/run", "/mnt");
  CHECK(list.problems.empty());
  std::string said;
  for (const auto& input : list.inputs) {
    said += input.path + ">" + input.as + " ";
  }
  CHECK(said ==
        "a> b\xc2\xa0>c d\xc2\xa0"
        "e> f\r> ");
}
