// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch_test_macros.hpp>

#include <string>

#include "config/job_config.hpp"

using efs::config::glob_match;

TEST_CASE("plain names") {
  CHECK(glob_match("a/b/c", "a/b/c"));
  CHECK(glob_match("a/b/", "a/b"));
  CHECK(glob_match("", ""));
  CHECK_FALSE(glob_match("a/b", "a/b/c"));
  CHECK_FALSE(glob_match("a/b/c", "a/b"));
  CHECK_FALSE(glob_match("", "a"));
}

TEST_CASE("a star stays in its component") {
  CHECK(glob_match("*.nc", "x.nc"));
  CHECK(glob_match("out/*", "out/a"));
  CHECK(glob_match("a*b*c", "a__b_b_c"));
  CHECK(glob_match("*", "x"));
  CHECK_FALSE(glob_match("*.nc", "d/x.nc"));
  CHECK_FALSE(glob_match("*", ""));
  CHECK_FALSE(glob_match("a*b*c", "a__b_"));
}

TEST_CASE("a question mark is one character, of several bytes too") {
  CHECK(glob_match("a?c", "abc"));
  CHECK(glob_match("a?c",
                   "a\xC3\xA9"
                   "c"));
  CHECK(glob_match("a?c",
                   "a\xFF"
                   "c"));
  CHECK_FALSE(glob_match("a?c", "ac"));
  CHECK_FALSE(glob_match("a?c", "a/c"));
}

TEST_CASE("bracket expressions") {
  CHECK(glob_match("x[abc]", "xb"));
  CHECK(glob_match("x[a-cx-z]", "xy"));
  CHECK(glob_match("x[!a-c]", "xd"));
  CHECK(glob_match("x[^a-c]", "xd"));
  CHECK(glob_match("x[]]", "x]"));
  CHECK(glob_match("x[a-]", "x-"));
  CHECK(glob_match("x[\\]]", "x]"));
  CHECK(glob_match("x[[:digit:]_]", "x7"));
  CHECK(glob_match("x[[:digit:]_]", "x_"));
  CHECK(glob_match("x[\xC3\xA0-\xC3\xBF]", "x\xC3\xA9"));
  CHECK_FALSE(glob_match("x[!a-c]", "xa"));
  CHECK_FALSE(glob_match("x[a-c]", "xd"));
  CHECK_FALSE(glob_match("x[[:digit:]]", "xa"));
}

TEST_CASE("an open bracket that is never closed stands for itself") {
  CHECK(glob_match("x[a", "x[a"));
  CHECK(glob_match("x[", "x["));
  CHECK_FALSE(glob_match("x[a", "xa"));
}

TEST_CASE("a backslash takes the meaning away") {
  CHECK(glob_match("a\\*b", "a*b"));
  CHECK_FALSE(glob_match("a\\*b", "axb"));
  CHECK(glob_match("a\\", "a\\"));
}

TEST_CASE("two stars are any number of components") {
  CHECK(glob_match("**/x", "x"));
  CHECK(glob_match("**/x", "a/b/x"));
  CHECK(glob_match("a/**/x", "a/x"));
  CHECK(glob_match("a/**/x", "a/b/c/x"));
  CHECK(glob_match("a/**", "a"));
  CHECK(glob_match("a/**", "a/b/c"));
  CHECK(glob_match("**", "a/.hidden/b"));
  CHECK(glob_match("**/b/**/c", "b/a/b/x/c"));
  CHECK(glob_match("**/*.h5", "run/restart.h5"));
  CHECK(glob_match("a**b", "axxb"));
  CHECK_FALSE(glob_match("a/**/x", "b/x"));
  CHECK_FALSE(glob_match("**/x", "a/b"));
}

TEST_CASE("a leading period is matched by a period only") {
  CHECK(glob_match(".*", ".profile"));
  CHECK(glob_match("\\.*", ".profile"));
  CHECK_FALSE(glob_match("*", ".profile"));
  CHECK_FALSE(glob_match("?profile", ".profile"));
  CHECK_FALSE(glob_match("[.]profile", ".profile"));
  CHECK_FALSE(glob_match("a/*", "a/.b"));
}

TEST_CASE("hostile patterns end soon") {
  std::string stars, deep;
  for (int i = 0; i < 300; ++i) {
    stars += "*a";
    deep += "**/a/";
  }
  CHECK_FALSE(glob_match(stars, std::string(5000, 'a') + "b"));
  std::string path;
  for (int i = 0; i < 2000; ++i) {
    path += "a/";
  }
  CHECK_FALSE(glob_match(deep + "b", path + "c"));
}
