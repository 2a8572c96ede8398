// SPDX-License-Identifier: BSD-3-Clause
#include "stage/export/result_publisher.hpp"

#include <algorithm>
#include <array>

#include "stage/pfs/name_claim.hpp"

namespace efs::stage {
namespace {

constexpr int most_tries = 1000;  // of getting a name for which other processes compete

/// True if the PFS should have a copy of the result.
bool is_brought_out(const Outgoing& out) {
  return out.is<outgoing::Settled>() &&
         (out.entry.action == Action::staged_out || out.entry.action == Action::kept);
}

/// True if `now`, which has the name of the settled result on the PFS, is still its copy.
bool is_still_copy(const Outgoing& out, const struct stat& now) {
  if (out.file.checksum && now.st_ino != out.file.inode) {
    return false;
  }
  return !std::get<outgoing::Settled>(out.state).is_of_before || is_untouched_copy(now, *out.item);
}

/// True if the PFS cannot link, or cannot link this file. That is no failure: the result is then a
/// separate file.
bool cannot_link(const Error& error) {
  constexpr std::array codes{EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV};
  return std::ranges::find(codes, error.code) != codes.end();
}

}  // namespace

ResultPublisher::ResultPublisher(const ExportContext& context, ResultNames& names)
    : pfs_(context.pfs),
      publisher_(*context.options.publisher),
      tree_(context.tree),
      progress_(context.progress),
      failures_(context.failures),
      names_(names),
      records_(context),
      in_place_(config::has_results_in_place(context.config)),
      scratches_(context.options.transfer_size, context.options.processors()) {}

void ResultPublisher::publish(std::span<Outgoing> task) {
  const ScratchPool::Loan scratch(scratches_);
  DirectoryCursor directories = tree_.cursor();
  for (auto& out : task) {
    if (out.is<outgoing::Written>()) {
      publish_one(out, directories, *scratch);
    }
  }
}

void ResultPublisher::publish_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch) {
  auto directory = directories.at(parent_of(out.item->path));
  if (!directory) {
    failures_.fail_result(out, directory.error()).partial_left = true;
    return;
  }
  // the file has its name, and programs will see this version
  if (out.straight) {
    return records_.record_named(out, *directory, false);
  }
  out.hold({});
  if (!take_name(out, *directory, scratch)) {
    return;
  }
  out.state = outgoing::Named{};
  out.entry.replaced = out.replaces;
  records_.record_named(out, *directory, false);
}

/// Gives the partial its name. False if the result is settled, `named` by an earlier stage-out, or
/// held.
bool ResultPublisher::take_name(Outgoing& out, PfsRef directory, Scratch& scratch) {
  for (int tries = 1;; ++tries) {
    PfsCheck there;
    const auto job = look_again(out, directory, scratch, there);
    if (!job) {
      out.set_partial_left(true);
      return false;
    }
    const auto about_to = [&](const struct stat& partial, bool is_shared) {
      records_.record_naming(out, *job, partial, is_shared);
    };
    const auto published = publish_partial(*job, out.file, pfs_, publisher_, about_to);
    if (published) {
      return true;
    }
    if (is_held(published.error())) {
      out.hold(published.error().what);
      return false;
    }
    if (!is_name_taken(*job, published.error())) {
      failures_.fail_name(out, published.error());
      return false;
    }
    if (tries == most_tries) {
      const Error error{
          EEXIST,
          "other processes keep replacing the file of its name: it is kept in the buffer only"};
      failures_.fail_name(out, error).partial_left = true;
      return false;
    }
    // Another run has since used that name: this version gets the next one.
    if (!out.entry.placed_as.empty() &&
        !names_.resolve(out, {.act = Act::keep_both, .obstacle = out.kept_beside}, directory,
                        scratch)) {
      out.set_partial_left(true);
      return false;
    }
  }
}

/// Checks the file that has the name once more, as late as possible, because writing may have taken
/// minutes. If that file is an input or an earlier result of the job, only it may be replaced.
/// Returns nullopt if the result is settled. The returned job points into `there`.
std::optional<PartialJob> ResultPublisher::look_again(Outgoing& out, PfsRef directory,
                                                      Scratch& scratch, PfsCheck& there) {
  if (!names_.is_looked_at(out) || !out.entry.placed_as.empty()) {
    return out.job(directory);
  }
  const auto checked = names_.check(out, directory, scratch);
  if (!checked) {
    failures_.fail_result(out, checked.error());
    return std::nullopt;
  }
  there = *checked;
  const Decision decision = names_.decide(out, there);
  if (decision.obstacle != Obstacle::none && !names_.resolve(out, decision, directory, scratch)) {
    return std::nullopt;
  }
  out.replaces = decision.replaces && out.entry.placed_as.empty();
  PartialJob job = out.job(directory);
  if (out.entry.placed_as.empty()) {
    job.rule = publisher_.rule_for(there.exists ? &there.seen : nullptr);
  }
  return job;
}

bool ResultPublisher::link(Outgoing& out, const Outgoing& first) {
  if (out.is<outgoing::Settled>() || first.is<outgoing::Written>()) {
    return true;
  }
  if (!is_brought_out(first) || progress_.cancel) {
    return false;
  }
  out.hold({});
  const auto from = tree_.directory(parent_of(first.item->path));
  const auto to = tree_.directory(parent_of(out.item->path));
  if (!from || !to) {
    failures_.fail_result(out, from ? to.error() : from.error());
    return true;
  }
  const auto now = pfs_.lstat(*from, first.name);
  if (!now || !is_still_copy(first, *now)) {
    return false;
  }
  return link_copy(out, {.first = first, .directory = *from, .now = *now}, *to);
}

/// Gives the copy the name of `out` in `directory` too. Returns as link().
bool ResultPublisher::link_copy(Outgoing& out, const LinkedCopy& copy, PfsRef directory) {
  const auto present = pfs_.lstat(directory, out.name);
  if (!present) {
    return make_link(out, copy, directory, nullptr);
  }
  if (!names_.is_spelled_so(out, directory)) {
    return true;
  }
  if (present->st_dev == copy.now.st_dev && present->st_ino == copy.now.st_ino) {
    out.entry.replaced = false;
    take_link(out, copy, directory, true);
    return true;
  }
  // Another version than the imported one: write the result as any other; that code applies the
  // policy.
  if (names_.is_looked_at(out) && !names_.is_own(out, *present)) {
    return false;
  }
  if (!in_place_ && names_.is_over_input(out, directory)) {
    return true;
  }
  return make_link(out, copy, directory, &*present);
}

/// `present`: the file that has the name; null: none has. Returns as link().
bool ResultPublisher::make_link(Outgoing& out, const LinkedCopy& copy, PfsRef directory,
                                const struct stat* present) {
  PartialJob job = out.job(directory);
  if (names_.is_looked_at(out)) {
    job.rule = publisher_.rule_for(present);
  }
  const LinkSource first{.directory = copy.directory, .name = copy.first.name};
  const bool first_is_shared = publisher_.is_shared(pfs_, first.directory, first.name, copy.now);
  const auto about_to = [&](bool is_shared) {
    records_.record_naming(out, job, copy.now, is_shared || first_is_shared);
  };
  const auto done = link_partial(first, job, pfs_, publisher_, about_to);
  if (!done && is_held(done.error())) {
    out.hold(done.error().what);
    return true;
  }
  if (!done && cannot_link(done.error())) {
    return false;
  }
  if (!done) {
    failures_.fail_name(out, done.error());
    return true;
  }
  out.entry.replaced = present != nullptr && !names_.is_own(out, *present);
  take_link(out, copy, directory, false);
  return true;
}

/// The name of `out` leads to the copy now.
void ResultPublisher::take_link(Outgoing& out, const LinkedCopy& copy, PfsRef directory,
                                bool there_already) {
  out.file = {.inode = copy.now.st_ino,
              .size = static_cast<std::uint64_t>(copy.now.st_size),
              .checksum = std::nullopt};
  out.state = outgoing::Named{.there_already = there_already};
  out.entry.checksum = copy.first.entry.checksum;
  out.entry.bytes = 0;
  out.entry.reason = "another name of " + copy.first.item->path;
  records_.record_named(out, directory, false);
  records_.record_linked(copy.first, copy.directory);
}

}  // namespace efs::stage
