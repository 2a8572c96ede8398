// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/publisher.hpp"

#include "stage/pfs/merge.hpp"

namespace efs::stage {
namespace {

class ReplacingPublisher final : public Publisher {
 public:
  NameRule rule_for(const struct stat*) const override { return {}; }

  Status publish(PfsIo& pfs, const Naming& naming, const AboutToName& about_to) override {
    const auto& [at, from, to] = naming.names;
    const auto tell = [&] {
      if (about_to) {
        about_to(false);
      }
    };
    if (naming.rule.is_new) {
      tell();
      return rename_new(pfs, naming.names);
    }
    // Together: a pause of the pace comes before the announcement.
    return pfs.as_one_call("rename", to, [&](PfsIo& calls) {
      tell();
      return calls.rename(at, from, to);
    });
  }

  Status remove(PfsIo& pfs, const InputRemoval& removal) override {
    const auto& [at, name, seen, claimant] = removal;
    return pfs.as_one_call(
        "remove", name, [&](PfsIo& calls) { return remove_over(calls, at, name, seen, claimant); });
  }

  bool is_shared(PfsIo&, PfsRef, const std::string&, const struct stat&) override { return false; }
};

}  // namespace

NameRule GuardedPublisher::rule_for(const struct stat* seen) const {
  return {.is_new = seen == nullptr, .over = seen};
}

Status GuardedPublisher::publish(PfsIo& pfs, const Naming& naming, const AboutToName& about_to) {
  if (naming.rule.over == nullptr) {
    return base_.publish(pfs, naming, about_to);
  }
  return rename_over(pfs, naming.names, naming.partial, *naming.rule.over, [&] {
    return base_.publish(pfs, {.names = naming.names, .partial = naming.partial}, about_to);
  });
}

Status GuardedPublisher::remove(PfsIo& pfs, const InputRemoval& removal) {
  return base_.remove(pfs, removal);
}

bool GuardedPublisher::is_shared(PfsIo& pfs, PfsRef at, const std::string& name,
                                 const struct stat& there) {
  return base_.is_shared(pfs, at, name, there);
}

// Never destroyed: as posix_pfs().
Publisher& replacing_publisher() {
  static Publisher& instance = *new ReplacingPublisher;
  return instance;
}

Publisher& guarded_publisher() {
  static Publisher& instance = *new GuardedPublisher(replacing_publisher());
  return instance;
}

}  // namespace efs::stage
