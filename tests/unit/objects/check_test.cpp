// SPDX-License-Identifier: BSD-3-Clause
// objects/manifest.cpp and objects/check.cpp.
#include <catch2/catch_test_macros.hpp>

#include "objects/manifest.hpp"
#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

constexpr std::size_t checked_length = 20000;

/// A store with version 1 of run, open: the objects d/v and u.
struct Committed {
  Committed() {
    eo_storage* draft = nullptr;
    REQUIRE(eo_begin(temp.store, "run", 1, &draft) == 0);
    REQUIRE(store_filled(draft, "u", 1, checked_length) == 0);
    REQUIRE(store_filled(draft, "d/v", 2, checked_length) == 0);
    REQUIRE(eo_commit(draft, 0) == 0);
    REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  }

  Committed(const Committed&) = delete;
  Committed& operator=(const Committed&) = delete;

  ~Committed() { eo_close(version); }

  std::string path(const std::string& file) const { return temp.path() + "/run/00000001/" + file; }

  TempStore temp;
  eo_storage* version = nullptr;
};

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a version that is whole is good", "[objects]") {
  const Committed made;
  CHECK(eo_check(made.version, nullptr) == 0);
  CHECK(eo_check(made.version, "u") == 0);
  CHECK(eo_check(made.version, "d/v") == 0);
  CHECK(eo_check(made.version, "nosuch") == ENOENT);
  CHECK(eo_check(made.version, "../u") == EINVAL);
  CHECK(eo_check(made.temp.store, nullptr) == EINVAL);
  CHECK(eo_check(nullptr, nullptr) == EINVAL);
}

TEST_CASE("a damaged object is found", "[objects]") {
  const Committed made;
  const std::string file = made.path("u.npy");
  const std::string good = bytes_of(file);
  for (const std::size_t at : {std::size_t{3}, std::size_t{30}, std::size_t{128}, checked_length}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_file(file, bad);
    CHECK(eo_check(made.version, nullptr) == EBADMSG);
    CHECK(error_says(" u: "));
    CHECK(eo_check(made.version, "u") == EBADMSG);
    CHECK(eo_check(made.version, "d/v") == 0);
  }
  write_file(file, good + "x");
  CHECK(eo_check(made.version, nullptr) == EBADMSG);
  CHECK(error_says("80129 bytes, in the manifest 80128"));
  std::filesystem::remove(file);
  CHECK(eo_check(made.version, nullptr) == EBADMSG);
  CHECK(error_says("u: the object is missing"));
  write_file(file, good);
  CHECK(eo_check(made.version, nullptr) == 0);
  write_file(made.path("w.npy"), good);
  CHECK(eo_check(made.version, nullptr) == EBADMSG);
  CHECK(eo_check(made.version, "w") == EBADMSG);
  CHECK(error_says("w: the object is not in the manifest"));
}

TEST_CASE("a damaged manifest is refused", "[objects]") {
  const Committed made;
  const std::string file = made.path("manifest.json");
  const std::string good = bytes_of(file);
  const auto checked_with = [&](const std::string& text) {
    write_file(file, text);
    return eo_check(made.version, nullptr);
  };
  for (std::size_t size = 0; size + 1 < good.size(); ++size) {
    INFO("cut to " << size);
    REQUIRE(checked_with(good.substr(0, size)) == EBADMSG);
  }
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\"name\": \"u\"", "\"name\": \"../u\""},
           {"\"name\": \"u\"", "\"name\": \"d/v\""},
           {"\"name\": \"u\"", "\"name\": \"a\""},
           {"\"name\": \"u\"", "\"name\": \"u\", \"name\": \"u\""},
           {"\"name\": \"u\"", "\"name\": \"\\u0075\""},
           {"\"name\": \"u\", ", ""},
           {"\"size\": 80128", "\"size\": 99999999999999999999"},
           {"\"size\": 80128", "\"size\": -1"},
           {"\"size\": 80128", "\"size\": 80129"},
           {"[20000]", "[20001]"},
           {"[20000]", "[20000"},
           {"[20000]", "[[20000]]"},
           {"[20000]", "[18446744073709551615, 18446744073709551615]"},
           {"[20000]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,20000]"},
           {"<i4", "<i8"},
           {"<i4", "<i4444444444444"},
           {"false", "true, \"x\": [1]"},
           {"xxh3:", "xxh4:"},
           {"\"objects\"", "\"format\": \"efs-objects-1\", \"objects\""},
           {"\"objects\": [",
            "\"objects\": [{\"objects\": [{\"objects\": [{\"objects\": []}]}]}, "},
           {"\"dtype\"", "\"file\": \"/etc/passwd\", \"dtype\""}}) {
    INFO(from << " -> " << to);
    CHECK(checked_with(replaced(good, from, to)) == EBADMSG);
  }
  CHECK(checked_with(std::string(1000000, '[')) == EBADMSG);
  CHECK(checked_with("{\"format\": \"" + std::string(1000000, 'x') + "\"}") == EBADMSG);
  CHECK(checked_with(replaced(good, "objects-1", "objects-2")) == ENOTSUP);
  CHECK(checked_with(replaced(good, "\"objects\"", "\"made\": \"\\\\a\\\"\", \"objects\"")) == 0);
  CHECK(checked_with(replaced(good, "\"dtype\"", "\"unit\": null, \"dtype\"")) == 0);
  write_file(file, good);
  std::filesystem::resize_file(file, (256U << 20U) + 1);
  CHECK(eo_check(made.version, nullptr) == EBADMSG);
  CHECK(error_says("longer than 256 MiB"));
  std::filesystem::remove(file);
  CHECK(eo_check(made.version, nullptr) == ENOENT);
  std::filesystem::create_symlink("/etc/passwd", file);
  CHECK(eo_check(made.version, nullptr) == EBADMSG);
}

TEST_CASE("no changed byte of a manifest goes unnoticed, but blanks", "[objects]") {
  const Committed made;
  const std::string good = bytes_of(made.path("manifest.json"));
  const auto parsed = efs::objects::parse_manifest(good);
  REQUIRE(parsed);
  CHECK(efs::objects::manifest_of(*parsed) == good);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte : std::string_view("\0 \"{}[],:\\x9\xff", 13)) {
      std::string bad = good;
      bad[at] = byte;
      const auto read = efs::objects::parse_manifest(bad);
      INFO(at << ": " << byte);
      if (read && bad != good) {
        // Accepted: then it says another thing, or the byte was a blank.
        REQUIRE((efs::objects::manifest_of(*read) != good || good[at] == ' ' || good[at] == '\n'));
      }
    }
  }
}

}  // namespace efs::objects_test
