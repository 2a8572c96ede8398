// SPDX-License-Identifier: BSD-3-Clause
#include "stage/plan/placement.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace efs::stage {
namespace {

class Placing {
 public:
  Placing(const config::JobConfig& config, Plan& plan, const Rooms& rooms)
      : config_(config), plan_(plan) {
    plan_.shares.clear();
    for (std::size_t i = 0; i < config_.backends.size(); ++i) {
      plan_.shares.push_back({.backend = config_.backends[i].id,
                              .memory = config_.backends[i].type == config::BackendType::dram,
                              .journal = i == 0,
                              .new_files = i == config_.new_files,
                              .room = i < rooms.size() ? rooms[i] : std::nullopt});
    }
  }

  void run(std::optional<unsigned> home) {
    // Files with a backend of their own come before all others.
    for (auto& entry : plan_.entries) {
      if (entry.type != EntryType::file || !entry.link_to.empty()) {
        continue;
      }
      entry.place =
          home.value_or(static_cast<unsigned>(config::backend_of(config_, entry.path, true)));
      if (!put(entry, entry.place)) {
        homeless_.push_back(&entry);
      }
    }
    std::ranges::stable_sort(homeless_, std::greater{}, &PlanEntry::needed);
    if (config_.on_full == config::OnFull::spill) {
      std::erase_if(homeless_, [this](PlanEntry* entry) { return spill(*entry); });
    }
    if (homeless_.empty()) {
      return;
    }
    config_.on_full == config::OnFull::spill ? report_no_room() : report_full();
  }

 private:
  bool put(PlanEntry& entry, unsigned place) {
    Share& share = plan_.shares[place];
    if (share.room && share.needed + entry.needed > *share.room) {
      return false;
    }
    share.needed += entry.needed;
    ++share.files;
    entry.place = place;
    return true;
  }

  bool spill(PlanEntry& entry) {
    const auto places = static_cast<unsigned>(plan_.shares.size());
    for (unsigned step = 1, home = entry.place; step < places; ++step) {
      const unsigned place = (home + step) % places;
      if (!put(entry, place)) {
        continue;
      }
      ++plan_.shares[place].spilled;
      return true;
    }
    return false;
  }

  void report(std::string reason) {
    plan_.problems.push_back({.path = config_.root_dir, .reason = std::move(reason), .line = 0});
  }

  void report_full() {
    for (unsigned place = 0; place < plan_.shares.size(); ++place) {
      std::uint64_t more = 0;
      for (const auto* entry : homeless_) {
        if (entry->place == place) {
          more += entry->needed;
        }
      }
      const Share& share = plan_.shares[place];
      if (more > 0) {
        report("the inputs of backend " + share.backend + " need " +
               format_bytes(share.needed + more) + " and it takes " + format_bytes(*share.room) +
               ": raise its capacity, stage in less, give some another backend, or say on-full: "
               "spill");
      }
    }
  }

  void report_no_room() {
    std::uint64_t more = 0;
    for (const auto* entry : homeless_) {
      more += entry->needed;
    }
    report(std::to_string(homeless_.size()) + " inputs of " + format_bytes(more) +
           " fit into no backend, the largest of them " + homeless_.front()->path + " (" +
           format_bytes(homeless_.front()->needed) + "): raise a capacity or stage in less");
  }

  const config::JobConfig& config_;
  Plan& plan_;
  std::vector<PlanEntry*> homeless_;  // files that do not fit on their own backend
};

}  // namespace

void place_entries(const config::JobConfig& config, Plan& plan, const Rooms& rooms,
                   std::optional<unsigned> home) {
  if (config.backends.size() > 1) {
    Placing(config, plan, rooms).run(home);
  }
}

}  // namespace efs::stage
