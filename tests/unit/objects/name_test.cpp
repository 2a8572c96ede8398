// SPDX-License-Identifier: BSD-3-Clause
#include "objects/name.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

TEST_CASE("odd names are refused with a text", "[objects]") {
  const std::string deep = [] {
    std::string name = "a";
    for (int i = 0; i < 32; ++i) {
      name += "/a";
    }
    return name;
  }();
  for (const std::string& name : {std::string(),
                                  std::string("."),
                                  std::string(".."),
                                  std::string("/"),
                                  std::string("/a"),
                                  std::string("a/"),
                                  std::string("a//b"),
                                  std::string("a/../b"),
                                  std::string("a/."),
                                  std::string("a.part"),
                                  std::string("a.part/b"),
                                  std::string("a.npy"),
                                  std::string("a.npy/b"),
                                  std::string(252, 'x'),
                                  std::string(252, 'x') + "/b",
                                  deep,
                                  std::string("a\nb"),
                                  std::string("a\x7f"),
                                  std::string("\xff"),
                                  std::string("\xc0\x80"),
                                  std::string("\xed\xa0\x80"),
                                  std::string("\xf4\x90\x80\x80"),
                                  std::string("a\xc3"),
                                  std::string("run/00000042"),
                                  std::string("123456789/u"),
                                  std::string("a\0b", 3)}) {
    INFO(objects::printable(name));
    const auto status = objects::check_name(name);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == EINVAL);
    CHECK_FALSE(status.error().reason.empty());
  }
}

TEST_CASE("other names are good", "[objects]") {
  for (const std::string& name :
       {std::string("u"), std::string("run/u"), std::string("..."), std::string(".hidden"),
        std::string("a b"), std::string("caf\xc3\xa9"), std::string("\xf0\x9f\x8c\x8a/x"),
        std::string("*?[]\\\"'$`"), std::string("1234567"), std::string("12345678a"),
        std::string("part"), std::string("npy"), std::string("-rf"), std::string("manifest.json"),
        std::string(251, 'x')}) {
    INFO(name);
    CHECK(objects::check_name(name));
  }
}

TEST_CASE("odd names reach the file system", "[objects]") {
  const TempStore temp;
  const std::string longest(251, 'x');
  for (const char* name : {"*?[]\\\"'$`", "-rf", "a/b/c d/caf\xc3\xa9", longest.c_str()}) {
    INFO(name);
    CHECK(store_filled(temp.store, name, 7, 3) == 0);
    CHECK(value_of(temp.store, name) == 7);
  }
  CHECK(store_filled(temp.store, "../u", 7, 3) == EINVAL);
  const std::string text = eo_error();
  CHECK(text.find("../u") != std::string::npos);
  CHECK(text.find("or ..") != std::string::npos);
  CHECK(text.find("Choose a name") != std::string::npos);
  CHECK(value_of(temp.store, "a\nb") == -2);
  CHECK(std::string(eo_error()).find('\n') == std::string::npos);
  CHECK(eo_remove(temp.store, "/etc/passwd") == EINVAL);
}

TEST_CASE("the directories of versions have one spelling", "[objects]") {
  CHECK(objects::version_directory(42) == "00000042");
  CHECK(objects::version_directory(123456789) == "123456789");
  CHECK(objects::version_of("00000042") == 42);
  CHECK(objects::version_of("18446744073709551614") == UINT64_MAX - 1);
  for (const char* name : {"", "42", "000000042", "0000004x", "18446744073709551615",
                           "99999999999999999999", "00000042.part"}) {
    CHECK_FALSE(objects::version_of(name));
  }
  const std::string draft = objects::version_draft_name(42, *objects::new_token());
  CHECK(draft == "00000042-eo-" + objects::node_mark() + ".part");
  CHECK(objects::is_version_draft(draft));
  for (const char* name : {"00000042.part", "42-eo-0123ab.part", "00000042-eo-0123aB.part",
                           "00000042-eo-0123abc.part", "00000042-eo-.part", "-eo-0123ab.part"}) {
    CHECK_FALSE(objects::is_version_draft(name));
  }
  CHECK(objects::is_of_this_node(draft));
  CHECK(objects::is_of_this_node(*objects::new_draft_name()));
  CHECK_FALSE(objects::is_of_this_node("film.part"));
  CHECK_FALSE(objects::is_draft("film.part"));
  CHECK(objects::is_draft(*objects::new_draft_name()));
  CHECK(*objects::new_draft_name() != *objects::new_draft_name());
}

}  // namespace efs::objects_test
