// SPDX-License-Identifier: BSD-3-Clause
// The part of a text that a screen has room for.
#include "cli/screen.hpp"

#include <catch2/catch_test_macros.hpp>

namespace {

using namespace efs::cli;

TEST_CASE("a text is cut to the screen", "[screen]") {
  const std::string text = "one\ntwo\nthree\n";
  CHECK(cut_to_screen(text, {}) == text);
  CHECK(cut_to_screen(text, {.columns = 3}) == "one\ntwo\nthr\n");
  CHECK(cut_to_screen(text, {.rows = 3}) == text);
  CHECK(cut_to_screen(text, {.rows = 2}) == "one\n... 2 more lines\n");
  CHECK(cut_to_screen(text, {.rows = 1}) == "... 3 more lines\n");
  CHECK(cut_to_screen("\u00e4\u00f6\u00fc\n", {.columns = 2}) == "\u00e4\u00f6\n");
  CHECK(cut_to_screen("", {.columns = 2, .rows = 2}).empty());
}

}  // namespace
