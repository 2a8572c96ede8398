// SPDX-License-Identifier: BSD-3-Clause
// Selects the results to export. Covers files with unreadable content.
#include "stage/export/selection.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "stage/export/receipt.hpp"

namespace efs::stage {
namespace {

config::JobConfig job_with_results(const std::string& persistent) {
  config::JobConfig config;
  config.name = "job";
  config.root_dir = "/pfs";
  config.results_dir = "/results";
  config::Resource resource;
  resource.path = "/pfs/" + persistent;
  resource.file_class = config::FileClass::persistent;
  config.resources.push_back(resource);
  return config;
}

fs::WalkItem file(const std::string& path, bool dirty) {
  fs::WalkItem item{.path = path};
  item.ino = 7;
  item.attributes.st_mode = S_IFREG | 0644;
  item.pfs.dirty = dirty;
  item.pfs.origin = fs::Origin{.inode = 3, .size = 5};
  return item;
}

TEST_CASE(
    "a file that cannot be read is a failed result where it has changed, and is named where it has "
    "not",
    "[stage][out]") {
  std::vector<fs::WalkItem> items{file("in/changed", true), file("in/clean", false),
                                  file("in/temporary", true), file("in/whole", true)};
  for (auto& item : items) {
    item.content.unreadable = "container 7: No such file or directory";
  }
  items[2].keep = fs::Keep::temporary;
  items[3].content.unreadable.clear();
  const Selection selection = select_outgoing(job_with_results("in"), items);
  REQUIRE(selection.outgoing.size() == 1);
  CHECK(selection.outgoing.front()->path == "in/whole");
  Receipt receipt{.entries = selection.settled};
  settle(receipt);
  REQUIRE(receipt.entries.size() == 3);
  const ReceiptEntry &changed = receipt.entries[0], &clean = receipt.entries[1],
                     &temporary = receipt.entries[2];
  CHECK(changed.action == Action::failed);
  CHECK(changed.unreadable);
  CHECK(changed.reason ==
        "its content cannot be read from the buffer: container 7: No such file or directory");
  CHECK(clean.action == Action::skipped);
  CHECK(clean.reason.ends_with("; no program has changed it since it was staged in"));
  CHECK(temporary.action == Action::dropped);
  CHECK(count_unreadable(receipt) == 1);
  CHECK(exit_code(receipt) == 1);
  CHECK(describe(receipt).contains("1 results cannot be read from the buffer"));
  CHECK_FALSE(describe(receipt).contains("still in the buffer"));
  CHECK(entry_of(nlohmann::json::parse(entry_text(changed)))->unreadable);
}

TEST_CASE("a file of which only the attributes or a name were changed needs its content, too",
          "[stage][out]") {
  fs::WalkItem renamed = file("in/new-name", false);
  renamed.pfs.origin.reset();
  renamed.content.unreadable = "container 7: Input/output error";
  const std::vector<fs::WalkItem> items{renamed};
  const Selection selection = select_outgoing(job_with_results("in"), items);
  CHECK(selection.outgoing.empty());
  REQUIRE(selection.settled.size() == 1);
  CHECK(selection.settled.front().action == Action::failed);
}

}  // namespace
}  // namespace efs::stage
