#include "base/text.hpp"

#include <catch2/catch_test_macros.hpp>

TEST_CASE("what would control a terminal is shown in octal, and the rest as it is") {
  using efs::printable;
  CHECK(printable("a name, \xc3\xbc \xe2\x82\xac and \\") == "a name, \xc3\xbc \xe2\x82\xac and \\");
  CHECK(printable("\033]0;title\007") == "\\033]0;title\\007");
  CHECK(printable("one\ntwo\r\t\x7f") == "one\\012two\\015\\011\\177");
  CHECK(printable("one\ntwo\033\n", true) == "one\ntwo\\033\n");
  CHECK(printable("\xc2\x9b" "31m") == "\\302\\23331m");
  CHECK(printable("\xc2\xa0") == "\xc2\xa0");
  CHECK(printable("\xc2") == "\xc2");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\000b");
  CHECK(printable("").empty());
}
