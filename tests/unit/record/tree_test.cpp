// SPDX-License-Identifier: BSD-3-Clause
#include "record/tree.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "unit/record/fake_tree.hpp"

namespace efs::record {

TEST_CASE("record: links and .. are resolved", "[record]") {
  FakeTree tree;
  tree.file("/pfs/run/a");
  tree.link("/alias", "pfs/run");
  tree.link("/pfs/run/b", "a");
  tree.link("/pfs/run/away", "/else/x");
  tree.link("/pfs/run/loop", "loop");
  CHECK(resolve("/alias/./x/../b", true, tree).path == "/pfs/run/a");
  CHECK(resolve("/alias/b", true, tree).links == std::vector<std::string>{"/alias", "/pfs/run/b"});
  CHECK(resolve("/alias/b", false, tree).path == "/pfs/run/b");
  CHECK(resolve("/pfs/run/away", true, tree).path == "/else/x");
  CHECK(resolve("/pfs/run/gone/../new", true, tree).path == "/pfs/run/new");
  CHECK(resolve("/../..", true, tree).path == "/");
  CHECK(resolve("/pfs/run/loop", true, tree).path == "/pfs/run/loop");
}

TEST_CASE("record: paths below a directory", "[record]") {
  CHECK(is_below("/a/b", "/a"));
  CHECK(is_below("/a", "/a"));
  CHECK(is_below("/a", "/"));
  CHECK_FALSE(is_below("/ab", "/a"));
  CHECK_FALSE(is_below("/", "/a"));
}

TEST_CASE("record: the tree of this machine", "[record]") {
  const auto directory =
      std::filesystem::temp_directory_path() / ("efs-record-" + std::to_string(::getpid()));
  std::filesystem::create_directory(directory);
  std::ofstream(directory / "file") << "four";
  std::filesystem::create_symlink("file", directory / "link");
  const RealTree tree;
  CHECK(tree.look(directory / "file")->bytes == 4);
  CHECK(tree.look(directory / "link")->target == "file");
  CHECK(tree.look(directory)->type == Node::Type::directory);
  CHECK_FALSE(tree.look(directory / "none"));
  CHECK(tree.names(directory) == std::vector<std::string>{"file", "link"});
  CHECK(tree.names(directory / "none").empty());
  std::filesystem::remove_all(directory);
}

}  // namespace efs::record
