// SPDX-License-Identifier: BSD-3-Clause
#include "base/text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

TEST_CASE("what would control a terminal is shown in octal, and the rest as it is") {
  using efs::printable;
  CHECK(printable("a name, \xc3\xbc \xe2\x82\xac and \\") ==
        "a name, \xc3\xbc \xe2\x82\xac and \\");
  CHECK(printable("\033]0;title\007") == "\\033]0;title\\007");
  CHECK(printable("one\ntwo\r\t\x7f") == "one\\012two\\015\\011\\177");
  CHECK(printable("one\ntwo\033\n", true) == "one\ntwo\\033\n");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\302\\23331m");
  CHECK(printable("a\xc2\xa0"
                  "b\xe2\x80\x8b\xef\xbb\xbf") == "a\\302\\240b\\342\\200\\213\\357\\273\\277");
  CHECK(printable("\xe2\x80\x93\xe2\x80\x9c\xc2\xa1") == "\xe2\x80\x93\xe2\x80\x9c\xc2\xa1");
  CHECK(printable("caf\xe9, \xc2") == "caf\\351, \\302");
  CHECK(printable("C:\\351") == "C:\\351");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\000b");
  CHECK(printable("").empty());
}

TEST_CASE("a character that is not seen, or looks like another, is named") {
  using namespace efs;
  CHECK_FALSE(find_odd("plain - \xc3\xbc \xe6\x97\xa5 'x'\xff"));
  CHECK(find_odd("ab\xc2\xa0")->at == 2);
  CHECK(find_odd("ab\xc2\xa0")->length == 2);
  CHECK(odd_note("a\xc2\xad") == " (which holds a soft hyphen, U+00AD)");
  CHECK(odd_note("\xff\xef\xbb\xbf", "its name") == " (its name holds a byte order mark, U+FEFF)");
  CHECK(odd_note("\xe2\x80\x93") == " (which holds an en dash, U+2013)");
  CHECK(odd_note("\xf3\xa0\x81\x81") == " (which holds an invisible character, U+E0041)");
  CHECK(odd_note("plain").empty());
  CHECK(escaped("a\xc2\xa0") == "a\\302\\240");
}

TEST_CASE("names that are not UTF-8 are text, and come back") {
  using namespace efs;
  CHECK(escaped("caf\xe9") == "caf\\351");
  CHECK(escaped("caf\xc3\xa9, \\ and \\x") == "caf\xc3\xa9, \\ and \\x");
  CHECK(escaped("a\nb\033") == "a\\012b\\033");
  CHECK(escaped("\\351") == "\\134351");
  CHECK(escaped("\\400") == "\\400");  // not a byte value
  CHECK(in_octal("a\nb\xff") == "a\nb\\377");
  CHECK_FALSE(needs_octal("a\nb \\ \\8 \xe2\x82\xac"));
  CHECK(needs_octal("\\101"));
  CHECK(needs_octal("\xe2\x82"));
  for (const char* bad :
       {"\x80", "\xc0\xaf", "\xc1\x81", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff", "\xe2\x82", "\xf0\x9f\x98"}) {
    CHECK(needs_octal(bad));
  }
  for (const char* good : {"\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK_FALSE(needs_octal(good));
  }
}

TEST_CASE("every name of a few odd bytes comes back, and no two look the same") {
  using namespace efs;
  const std::string odd = "\\01\n\xe9\xc3\xa9";
  std::set<std::string> shown, written;
  std::size_t names = 0;
  for (std::size_t number = 0;
       number < odd.size() * odd.size() * odd.size() * odd.size() * odd.size(); ++number) {
    std::string name;
    for (std::size_t i = 0, rest = number; i < 5; ++i, rest /= odd.size()) {
      name += odd[rest % odd.size()];
    }
    ++names;
    if (from_octal(escaped(name)) != name || from_octal(in_octal(name)) != name ||
        needs_octal(name) != (in_octal(name) != name)) {
      FAIL(escaped(name));
    }
    shown.insert(escaped(name));
    written.insert(in_octal(name));
  }
  CHECK(shown.size() == names);
  CHECK(written.size() == names);
}
