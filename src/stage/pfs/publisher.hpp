// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The policy by which results get and lose their names on the PFS. A store chooses one of three
// when it is opened, and no other code asks which:
//
//  - replacing: a result replaces the file of its name, whosever it is.
//  - guarded: it replaces only the file that the caller has looked at, in the state of that look.
//  - merging: several nodes publish in one directory, and none replaces another's file
//    (merging_publisher.hpp).

#include <sys/stat.h>

#include <string>

#include "base/result.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/rename.hpp"

namespace efs::stage {

/// Which file may have the name that another file is to get. By default any. Borrows `over`.
struct NameRule {
  bool is_new = false;                // none
  const struct stat* over = nullptr;  // only this one, unchanged

  /// True if the caller may look at the name again and try once more after EEXIST.
  bool is_bound() const { return is_new || over != nullptr; }
};

/// A file that is to get a name. `partial`: the attributes that it has under its partial name.
struct Naming {
  Rename names;
  const struct stat& partial;
  NameRule rule{};
};

/// An input of the job that lstat() returned as `seen`. `at`: its open directory. `claimant`: as in
/// NameClaim. Borrows the texts.
struct InputRemoval {
  PfsRef at{};
  const std::string& name;
  const struct stat& seen;
  const std::string& claimant;
};

/// Thread-safe for different names. `pfs` is the transfer's, with its pace; no publisher keeps it.
/// Nothing is durable before the caller syncs the directory. Errors are those of PfsIo, and
/// EALREADY if another process has a claim to the name (is_held()).
class Publisher {
 public:
  virtual ~Publisher() = default;

  /// The rule for a name that the caller has looked at. `seen`: the file that had it; null: none.
  virtual NameRule rule_for(const struct stat* seen) const = 0;

  /// Gives the file its name. `rule` is that of rule_for(), or `is_new`. EEXIST if another file has
  /// the name than the rule or the policy permits; nothing is changed then. `about_to` may be
  /// empty.
  virtual Status publish(PfsIo& pfs, const Naming& naming, const AboutToName& about_to) = 0;

  /// Removes the input. EEXIST if it differs from `seen` by now.
  virtual Status remove(PfsIo& pfs, const InputRemoval& removal) = 0;

  /// True if the file that has a result's name in results-dir may also be the result of another
  /// node.
  virtual bool is_shared(PfsIo& pfs, PfsRef at, const std::string& name,
                         const struct stat& there) = 0;
};

/// For files that only efs makes. Stateless.
Publisher& replacing_publisher();

/// `base` behind the rules. Keeps a reference to `base`.
class GuardedPublisher final : public Publisher {
 public:
  explicit GuardedPublisher(Publisher& base) : base_(base) {}

  NameRule rule_for(const struct stat* seen) const override;
  Status publish(PfsIo& pfs, const Naming& naming, const AboutToName& about_to) override;
  Status remove(PfsIo& pfs, const InputRemoval& removal) override;
  bool is_shared(PfsIo& pfs, PfsRef at, const std::string& name, const struct stat& there) override;

 private:
  Publisher& base_;
};

/// The guarded replacing_publisher(): for a store that alone exports to results-dir. Stateless.
Publisher& guarded_publisher();

}  // namespace efs::stage
