// SPDX-License-Identifier: BSD-3-Clause
// Bundles: objects/crc32.cpp, zip.cpp, bundle.cpp and bundle_store.cpp.
#include <fcntl.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <thread>

#include "objects/crc32.hpp"
#include "objects/files.hpp"
#include "objects/npy.hpp"
#include "objects/zip.hpp"
#include "support/durable_calls.hpp"
#include "unit/objects/arrays.hpp"

// A namespace of its own: files that are compiled as one share their names.
namespace efs::objects_test {

namespace {

using objects::Member;

/// Makes a bundle of arrays, each filled with the value.
void bundle_of(eo_storage* store, const char* name, std::int32_t value,
               const std::vector<std::string>& arrays, unsigned flags = 0) {
  eo_storage* bundle = nullptr;
  REQUIRE(eo_begin_bundle(store, name, &bundle) == 0);
  for (const std::string& array : arrays) {
    REQUIRE(store_filled(bundle, array.c_str(), value, 1000) == 0);
  }
  REQUIRE(eo_commit(bundle, flags) == 0);
}

std::int32_t value_in(eo_storage* store, const char* name, const char* array) {
  eo_storage* bundle = nullptr;
  const int error = eo_bundle(store, name, &bundle);
  if (error != 0) {
    return error == ENOENT ? -1 : -2;
  }
  const std::int32_t value = value_of(bundle, array);
  eo_close(bundle);
  return value;
}

/// A zip file of members with these sizes, and its members.
std::string zip_of(const std::vector<std::uint64_t>& sizes, std::vector<Member>& members) {
  std::string file;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string bytes(sizes[i], static_cast<char>('a' + i));
    Member member{"m" + std::to_string(i), file.size(), 0, bytes.size(), 0, true};
    member.crc = objects::crc32(0, bytes.data(), bytes.size());
    file += objects::local_header(member);
    file += bytes;
    members.push_back(member);
  }
  return file + objects::zip_end(members, file.size());
}

bool inside(const std::vector<Member>& members, std::size_t size) {
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    return !member.stored || (member.start <= size && member.size <= size - member.start);
  });
}

}  // namespace

TEST_CASE("CRC-32 is that of zip files", "[objects]") {
  CHECK(objects::crc32(0, "123456789", 9) == 0xcbf43926U);
  CHECK(objects::crc32_plain(0, "123456789", 9) == 0xcbf43926U);
  std::vector<char> bytes(1000);
  std::iota(bytes.begin(), bytes.end(), '\x3');
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::uint32_t before = static_cast<std::uint32_t>(size) * 2654435761U;
    const char* const from = bytes.data() + size % 13;
    const std::size_t length = size - size % 13;
    REQUIRE(objects::crc32(before, from, length) == objects::crc32_plain(before, from, length));
    REQUIRE(objects::crc32(objects::crc32(before, from, length / 3), from + length / 3,
                           length - length / 3) == objects::crc32_plain(before, from, length));
  }
}

TEST_CASE("a zip file is parsed as it was written", "[objects]") {
  std::vector<Member> members;
  const std::string file = zip_of({0, 1, 63, 64, 65, 1000}, members);
  const auto parsed = objects::parse_zip(file);
  REQUIRE(parsed);
  REQUIRE(parsed->size() == members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    CHECK((*parsed)[i].name == members[i].name);
    CHECK((*parsed)[i].start == members[i].start);
    CHECK((*parsed)[i].size == members[i].size);
    CHECK(members[i].start % 64 == 0);
  }
  CHECK(objects::parse_zip(objects::zip_end({}, 0))->empty());
}

TEST_CASE("a zip file with many or far members has the zip64 form", "[objects]") {
  std::vector<Member> many(70000);
  std::string file;
  for (std::size_t i = 0; i < many.size(); ++i) {
    many[i].name = "m" + std::to_string(i);
    many[i].offset = file.size();
    file += objects::local_header(many[i]);
  }
  const auto parsed = objects::parse_zip(file + objects::zip_end(many, file.size()));
  REQUIRE(parsed);
  CHECK(parsed->size() == 70000);
  CHECK(parsed->back().name == "m69999");

  // Behind 5 GiB that are a hole: mapped, they take no memory.
  const TempDirectory temp;
  const std::uint64_t far = 5ULL << 30U;
  std::vector<Member> members(1);
  members[0] = {"a", far, 0, 4, objects::crc32(0, "data", 4), true};
  const std::string end = objects::local_header(members[0]) + "data";
  {
    std::ofstream out(temp.path() + "/far", std::ios::binary);
    out.seekp(static_cast<std::streamoff>(far));
    out << end << objects::zip_end(members, far + end.size());
  }
  const objects::Fd fd(::open((temp.path() + "/far").c_str(), O_RDONLY | O_CLOEXEC));
  const std::size_t size = std::filesystem::file_size(temp.path() + "/far");
  const auto mapping = objects::Mapping::of(fd.get(), size, false);
  REQUIRE(mapping);
  const auto found = objects::parse_zip(std::string_view(mapping->data(), size));
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK((*found)[0].offset == far);
  CHECK(std::string_view(mapping->data() + (*found)[0].start, 4) == "data");
}

TEST_CASE("a damaged zip file is refused or harmless", "[objects]") {
  std::vector<Member> members;
  const std::string good = zip_of({70, 10}, members);
  for (std::size_t size = 0; size < good.size(); ++size) {
    REQUIRE_FALSE(objects::parse_zip(good.substr(0, size)));
  }
  CHECK_FALSE(objects::parse_zip(good + "x"));
  std::size_t refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte : std::string_view("\0\1\x7f\x80\xff", 5)) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{4}}) {
        std::string bad = good;
        bad.replace(at, std::min(bytes, bad.size() - at), bytes, byte);
        const auto parsed = objects::parse_zip(bad);
        refused += parsed ? 0 : 1;
        REQUIRE((!parsed || inside(*parsed, bad.size())));
      }
    }
  }
  CHECK(refused > 500);
}

TEST_CASE("a bundle is a store of many arrays in one file", "[objects]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp;
    eo_storage* bundle = nullptr;
    REQUIRE(eo_begin_bundle(temp.store, "d/few", &bundle) == 0);
    REQUIRE(store_filled(bundle, "b", 1, 10) == 0);
    REQUIRE(store_filled(bundle, "x/a", 2, 20) == 0);
    REQUIRE(store_filled(bundle, "empty", 0, 0) == 0);
    REQUIRE(store_filled(bundle, "large", 3, 600000) == 0);
    REQUIRE(store_filled(bundle, "b", 4, 30) == 0);  // replaces it
    CHECK(value_of(bundle, "b") == 4);               // readable before the commit
    REQUIRE(store_filled(bundle, "removed", 5, 10) == 0);
    CHECK(eo_remove(bundle, "removed") == 0);
    CHECK(eo_remove(bundle, "removed") == ENOENT);
    const std::vector<std::string> all{"b", "empty", "large", "x/a"};
    CHECK(names_of(bundle) == all);
    const eo_array array = array_of("<i4", {10});
    eo_draft* draft = nullptr;
    eo_storage* other = nullptr;
    CHECK(eo_create(bundle, "c", &array, &draft) == ENOTSUP);
    CHECK(eo_begin(bundle, "run", 1, &other) == ENOTSUP);
    CHECK(eo_begin_bundle(bundle, "c", &other) == EINVAL);
    CHECK(eo_bundle(temp.store, "d/few", &other) == ENOENT);
    eo_array early{};
    REQUIRE(eo_view(bundle, "x/a", &early) == 0);
    REQUIRE(eo_commit(bundle, flags) == 0);
    CHECK(drafts_in(temp.path()).empty());
    CHECK(names_of(temp.store).empty());

    REQUIRE(eo_bundle(temp.store, "d/few", &bundle) == 0);
    CHECK(names_of(bundle) == all);
    CHECK(value_of(bundle, "b") == 4);
    CHECK(value_of(bundle, "x/a") == 2);
    CHECK(value_of(bundle, "large") == 3);
    CHECK(value_of(bundle, "nosuch") == -1);
    CHECK(store_filled(bundle, "b", 1, 10) == EROFS);
    CHECK(eo_remove(bundle, "b") == EROFS);
    CHECK(eo_commit(bundle, 0) == EINVAL);
    CHECK(eo_check(bundle, nullptr) == EINVAL);
    eo_array view{};
    REQUIRE(eo_view(bundle, "b", &view) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(view.data) % 64 == 0);
    std::int32_t part[2] = {};
    const std::uint64_t start[] = {28};
    const eo_array into = array_of("<i4", {2}, EO_C_ORDER, part);
    REQUIRE(eo_load(bundle, "b", start, nullptr, &into) == 0);
    CHECK(part[1] == 4);
    const eo_array wrong = array_of("<i4", {3}, EO_C_ORDER, part);
    CHECK(eo_load(bundle, "b", start, nullptr, &wrong) == EINVAL);
    eo_array info{};
    REQUIRE(eo_info(bundle, "empty", &info) == 0);
    CHECK(info.shape[0] == 0);
    eo_close(bundle);
    REQUIRE(eo_remove_bundle(temp.store, "d/few") == 0);
    CHECK(eo_remove_bundle(temp.store, "d/few") == ENOENT);
    CHECK(static_cast<const std::int32_t*>(view.data)[29] == 4);
    CHECK(static_cast<const std::int32_t*>(early.data)[19] == 2);
    eo_release(&view);
    eo_release(&view);
    eo_release(&early);
    CHECK(view.data == nullptr);
  }
}

TEST_CASE("a bundle is replaced at once, and an aborted one leaves nothing", "[objects]") {
  const TempStore temp;
  bundle_of(temp.store, "few", 1, {"a", "b"});
  eo_storage* old = nullptr;
  REQUIRE(eo_bundle(temp.store, "few", &old) == 0);
  for (const auto end : {eo_abort, eo_close}) {
    eo_storage* bundle = nullptr;
    REQUIRE(eo_begin_bundle(temp.store, "few", &bundle) == 0);
    REQUIRE(store_filled(bundle, "a", 3, 10) == 0);
    end(bundle);
    CHECK(drafts_in(temp.path()).empty());
    CHECK(value_in(temp.store, "few", "a") == 1);
  }
  bundle_of(temp.store, "few", 2, {"a"});
  CHECK(value_in(temp.store, "few", "a") == 2);
  CHECK(value_in(temp.store, "few", "b") == -1);
  CHECK(value_of(old, "b") == 1);
  eo_close(old);
  eo_storage* bundle = nullptr;
  CHECK(eo_begin_bundle(temp.store, "few.npz", &bundle) == EINVAL);
  CHECK(eo_begin_bundle(temp.store, "../few", &bundle) == EINVAL);
  CHECK(eo_bundle(temp.store, nullptr, &bundle) == EINVAL);
  bundle_of(temp.store, "none", 0, {});
  REQUIRE(eo_bundle(temp.store, "none", &bundle) == 0);
  CHECK(names_of(bundle).empty());
  eo_close(bundle);
}

TEST_CASE("a damaged bundle is refused", "[objects]") {
  const TempStore temp;
  bundle_of(temp.store, "few", 1, {"a", "b"});
  const std::string file = temp.path() + "/few.npz";
  const std::string good = bytes_of(file);
  eo_storage* bundle = nullptr;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{21}, std::size_t{100}, good.size() / 2, good.size() - 1}) {
    write_file(file, good.substr(0, size));
    CHECK(eo_bundle(temp.store, "few", &bundle) == EBADMSG);
    CHECK(std::string_view(eo_error()).find("the bundle is damaged") != std::string_view::npos);
  }
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string bad = good;
    for (auto at = bad.find(from); at != std::string::npos; at = bad.find(from, at + 1)) {
      bad.replace(at, from.size(), to);
    }
    write_file(file, bad);
  };
  changed("b.npy", "a.npy");
  CHECK(eo_bundle(temp.store, "few", &bundle) == EBADMSG);
  changed("b.npy", "/.npy");  // a name that the library does not accept
  REQUIRE(eo_bundle(temp.store, "few", &bundle) == 0);
  CHECK(names_of(bundle) == std::vector<std::string>{"a"});
  eo_close(bundle);
  changed("(1000,)", "(9000,)");
  CHECK(value_in(temp.store, "few", "a") == -2);
  changed("'<i4'", "'|O8'");
  CHECK(value_in(temp.store, "few", "a") == -2);
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/etc/passwd", file);
  CHECK(eo_bundle(temp.store, "few", &bundle) == EBADMSG);
}

TEST_CASE("members with equal headers have their own sizes", "[objects]") {
  const TempStore temp;
  const auto header_of = [](std::uint64_t count) {
    return objects::header_of(*objects::checked(array_of("<i4", {count})));
  };
  std::string file;
  std::vector<Member> members;
  const auto add = [&](const char* name, const std::string& header, std::size_t size) {
    members.push_back({name, file.size(), 0, header.size() + size, 0, true});
    file += objects::local_header(members.back());
    file += header + std::string(size, '\1');
  };
  add("whole", header_of(30), 120);
  add("short", header_of(30), 60);
  add("other", header_of(31), 124);
  add("again", header_of(30), 120);
  write_file(temp.path() + "/few.npz", file + objects::zip_end(members, file.size()));
  eo_storage* bundle = nullptr;
  REQUIRE(eo_bundle(temp.store, "few", &bundle) == 0);
  for (int round = 0; round < 2; ++round) {
    CHECK(value_of(bundle, "whole") == 0x01010101);
    CHECK(value_of(bundle, "short") == -2);
    CHECK(error_says("needs"));
    eo_array info{};
    CHECK(eo_info(bundle, "other", &info) == 0);
    CHECK(info.shape[0] == 31);
    CHECK(eo_info(bundle, "again", &info) == 0);
    CHECK(info.shape[0] == 30);
  }
  eo_close(bundle);
}

TEST_CASE("EO_SYNC makes a bundle durable", "[objects]") {
  const TempStore temp;
  test::DurableCalls calls;
  bundle_of(temp.store, "d/few", 1, {"a"}, EO_SYNC);
  const std::string path = temp.path();
  const test::DurableEvent synced{"sync of the draft", [](const test::DurableCall& call) {
                                    return call.kind == test::DurableCall::Kind::sync &&
                                           call.path.ends_with(".part");
                                  }};
  const test::DurableEvent renamed{"rename", [&](const test::DurableCall& call) {
                                     return call.kind == test::DurableCall::Kind::rename &&
                                            call.to == path + "/d/few.npz";
                                   }};
  CHECK(test::disorder(calls.so_far(),
                       {synced, renamed, test::syncs(path + "/d"), test::syncs(path)}) == "");
  calls.fail_syncs(EIO);
  eo_storage* bundle = nullptr;
  REQUIRE(eo_begin_bundle(temp.store, "d/few", &bundle) == 0);
  REQUIRE(store_filled(bundle, "a", 2, 10) == 0);
  CHECK(eo_commit(bundle, EO_SYNC) == EIO);
  CHECK(value_in(temp.store, "d/few", "a") == 1);
  CHECK(drafts_in(path).empty());
}

TEST_CASE("an array that is stored with EO_SYNC makes the file of the small ones durable",
          "[objects]") {
  for (const unsigned flags : {0U, EO_SYNC}) {
    const TempStore temp;
    eo_storage* version = nullptr;
    const test::DurableCalls calls;
    REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
    REQUIRE(store_filled(version, "a", 1, 10, flags) == 0);
    REQUIRE(store_filled(version, "b", 1, 10) == 0);
    REQUIRE(eo_commit(version, 0) == 0);
    const auto made = calls.so_far();
    const auto synced = [](const test::DurableCall& call) {
      return call.kind == test::DurableCall::Kind::sync && call.path.ends_with("/small.npz");
    };
    CHECK(std::any_of(made.begin(), made.end(), synced) == (flags == EO_SYNC));
  }
}

TEST_CASE("threads fill one bundle", "[objects]") {
  const TempStore temp;
  eo_storage* bundle = nullptr;
  REQUIRE(eo_begin_bundle(temp.store, "few", &bundle) == 0);
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 200; ++i) {
        const std::string name = "t" + std::to_string(thread) + "/" + std::to_string(i);
        failures += store_filled(bundle, name.c_str(), thread * 1000 + i, 500) != 0 ? 1 : 0;
        failures += value_of(bundle, name.c_str()) != thread * 1000 + i ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(failures == 0);
  REQUIRE(eo_commit(bundle, 0) == 0);
  CHECK(value_in(temp.store, "few", "t3/199") == 3199);
}

TEST_CASE("the small arrays of a version share a file, and its readers see no difference",
          "[objects]") {
  const TempStore temp;
  eo_storage* version = nullptr;
  constexpr std::size_t most = 65536 / sizeof(std::int32_t);
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  REQUIRE(store_filled(version, "d/small", 1, most) == 0);
  REQUIRE(store_filled(version, "d/large", 2, most + 1) == 0);
  // A name is once: the last array of it counts, wherever it is.
  REQUIRE(store_filled(version, "grows", 3, 10) == 0);
  REQUIRE(store_filled(version, "grows", 4, most + 1) == 0);
  REQUIRE(store_filled(version, "shrinks", 5, most + 1) == 0);
  REQUIRE(store_filled(version, "shrinks", 6, 10) == 0);
  REQUIRE(store_filled(version, "draft", 7, 10) == 0);
  const eo_array array = array_of("<i4", {10});
  eo_draft* draft = nullptr;
  REQUIRE(eo_create(version, "draft", &array, &draft) == 0);
  std::fill_n(static_cast<std::int32_t*>(eo_data(draft)), 10, 8);
  CHECK(value_of(version, "draft") == 7);
  REQUIRE(eo_publish(draft, 0) == 0);
  REQUIRE(store_filled(version, "removed", 9, 10) == 0);
  REQUIRE(eo_remove(version, "removed") == 0);
  const std::vector<std::string> all{"d/large", "d/small", "draft", "grows", "shrinks"};
  const auto check = [&](eo_storage* in) {
    CHECK(names_of(in) == all);
    CHECK(value_of(in, "d/small") == 1);
    CHECK(value_of(in, "d/large") == 2);
    CHECK(value_of(in, "grows") == 4);
    CHECK(value_of(in, "shrinks") == 6);
    CHECK(value_of(in, "draft") == 8);
    CHECK(value_of(in, "removed") == -1);
  };
  check(version);
  REQUIRE(eo_commit(version, EO_SYNC) == 0);
  const std::string path = temp.path() + "/run/00000001/";
  CHECK(std::filesystem::exists(path + "d/large.npy"));
  CHECK_FALSE(std::filesystem::exists(path + "d/small.npy"));
  CHECK(bytes_of(path + "manifest.json").find("\"d/small\", \"file\": \"small.npz\"") !=
        std::string::npos);
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  check(version);
  CHECK(eo_check(version, nullptr) == 0);
  eo_close(version);

  // A damaged byte is found; a damaged file leaves the large objects readable.
  const std::string good = bytes_of(path + "small.npz");
  std::string bad = good;
  bad[1000] = static_cast<char>(bad[1000] ^ 1);
  write_file(path + "small.npz", bad);
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  CHECK(eo_check(version, "d/small") == EBADMSG);
  CHECK(eo_check(version, "d/large") == 0);
  eo_close(version);
  write_file(path + "small.npz", good.substr(0, 1000));
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  CHECK(value_of(version, "d/large") == 2);
  CHECK(value_of(version, "d/small") == -2);
  CHECK(eo_check(version, nullptr) == EBADMSG);
  CHECK(eo_check(version, "d/large") == 0);
  eo_close(version);
  std::filesystem::remove(path + "small.npz");
  REQUIRE(eo_version(temp.store, "run", 1, &version) == 0);
  CHECK(eo_check(version, nullptr) == EBADMSG);
  eo_close(version);
}

TEST_CASE("a version without small arrays has no bundle", "[objects]") {
  const TempStore temp;
  eo_storage* version = nullptr;
  REQUIRE(eo_begin(temp.store, "run", 1, &version) == 0);
  REQUIRE(store_filled(version, "a", 1, 10) == 0);
  REQUIRE(eo_remove(version, "a") == 0);
  REQUIRE(eo_commit(version, 0) == 0);
  CHECK_FALSE(std::filesystem::exists(temp.path() + "/run/00000001/small.npz"));
}

}  // namespace efs::objects_test
