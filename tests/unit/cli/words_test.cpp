// SPDX-License-Identifier: BSD-3-Clause
#include "cli/words.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace efs::cli {
namespace {

using Words = std::vector<std::string>;
constexpr std::array<std::string_view, 4> verbs{"start", "status", "stop", "check"};
constexpr std::array<std::string_view, 3> options{"--foreground", "--user", "--help"};

}  // namespace

TEST_CASE("a misspelt verb is named, with the one that was meant", "[cli][words]") {
  CHECK(refusal_of(Words{"stauts"}, verbs) == "unknown command 'stauts': did you mean status?");
  CHECK(refusal_of(Words{"strat", "job.yaml"}, verbs) ==
        "unknown command 'strat': did you mean start?");
  CHECK(refusal_of(Words{"frobnicate"}, verbs) ==
        "unknown command 'frobnicate': efs --help lists the commands");
  CHECK(refusal_of(Words{"stop\xc2\xa0job"}, verbs) ==
        "unknown command 'stop\\302\\240job' (which holds a no-break space, U+00A0): efs --help "
        "lists the commands");
  for (const Words& good :
       {Words{}, Words{"start", "stauts"}, Words{"--version"}, Words{"check", "\xc3\xbc"}}) {
    CHECK(refusal_of(good, verbs).empty());
  }
}

TEST_CASE("a dash that is no hyphen is named, but not where the program's words are",
          "[cli][words]") {
  CHECK(refusal_of(Words{"start",
                         "\xe2\x80\x93"
                         "f"},
                   verbs)
            .starts_with("'\xe2\x80\x93"
                         "f' begins with an en dash, U+2013: type a hyphen"));
  CHECK(refusal_of(Words{"start",
                         "\xe2\x80\x94"
                         "user"},
                   verbs)
            .contains("an em dash, U+2014"));
  CHECK(refusal_of(Words{"start",
                         "\xef\xbb\xbf"
                         "job.yaml"},
                   verbs)
            .contains("a byte order mark, U+FEFF"));
  CHECK(refusal_of(Words{"start", "--",
                         "\xe2\x80\x93"
                         "f"},
                   verbs)
            .empty());
  CHECK(refusal_of(Words{"start",
                         "a\xe2\x80\x93"
                         "b"},
                   verbs)
            .empty());
}

TEST_CASE("what an error of the parser may come from", "[cli][words]") {
  CHECK(hint_for(Words{"start", "--foregruond"}, options) == "; did you mean --foreground?");
  CHECK(hint_for(Words{"start", "--user=x", "--usre=y"}, options) == "; did you mean --user?");
  CHECK(hint_for(Words{"start", "--user\xc2\xa0x"}, options) ==
        "; '--user\\302\\240x' (which holds a no-break space, U+00A0)");
  CHECK(hint_for(Words{"start", "--nothing-like-it", "x"}, options).empty());
}

}  // namespace efs::cli
